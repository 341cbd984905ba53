#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bluefog_cpp/buffer_view.hpp"
#include "bluefog_cpp/context.hpp"
#include "bluefog_cpp/settings.hpp"
#include "topology/neighbor_plan.hpp"

namespace bluefog::python {

/// "auto", "component" or "neighbours". @throws InvalidArgument.
[[nodiscard]] SynchronisationChoice choice_of(std::string_view synchronisation);

/// Calls of `neighbor_allreduce` in place on one plain tensor, which is looked at once: again only
/// where its memory has changed.
class PreparedAverage {
 public:
  /// @throws UnsupportedError, InvalidArgument as `view_of`, and where it cannot be averaged.
  PreparedAverage(std::shared_ptr<Context> context, at::Tensor tensor, const std::string& name,
                  std::string_view synchronisation);

  /// @return false where the tensor is not plain any more: nothing was done.
  bool run(const std::shared_ptr<NeighborPlan>& plan, bool checked);

 private:
  [[nodiscard]] bool is_as_it_was() const;
  void look();

  std::shared_ptr<Context> context_;
  at::Tensor tensor_;
  std::string given_name_;
  std::string name_{};
  SynchronisationChoice synchronisation_;
  BufferView view_{};
  std::vector<std::int64_t> sizes_{};
  at::ScalarType scalar_type_{};
};

}  // namespace bluefog::python
