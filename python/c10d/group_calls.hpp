#pragma once

#include <c10/util/FunctionRef.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <string_view>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

#include "bluefog_cpp/context.hpp"
#include "ops/calls/series.hpp"
#include "python/c10d/arguments.hpp"
#include "python/c10d/group_work.hpp"
#include "python/c10d/tensors.hpp"

namespace bluefog::c10d_backend {

using ::c10d::OpType;

using Tensors = std::vector<at::Tensor>;
using WorkHandle = c10::intrusive_ptr<::c10d::Work>;

/// How a call of torch is made and waited for.
struct Manner {
  OpType type = OpType::UNKNOWN;
  /// The caller waits at once.
  bool is_blocking = false;
  std::chrono::milliseconds timeout{0};
};

/// The manner that the options of a collective ask for.
template <typename OptionsOfCall>
[[nodiscard]] Manner manner_of(OpType type, const OptionsOfCall& options) {
  return {.type = type,
          .is_blocking = !options.asyncOp,
          .timeout = std::max(options.timeout, std::chrono::milliseconds(0))};
}

/// Whether views keep their memory: a caller that waits keeps it.
[[nodiscard]] inline Keeps keeps(const Manner& manner) noexcept {
  return manner.is_blocking ? Keeps::Nothing : Keeps::Memory;
}

/// Makes the calls of a group: counts them, gives each its work, and tells the other ranks of those
/// whose arguments are refused. Any thread may use it.
class GroupCalls {
 public:
  /// @param context outlives this object.
  GroupCalls(Context& context, std::shared_ptr<const GroupParts> parts)
      : context_(context), parts_(std::move(parts)) {}

  /// The arguments that `make` gives, or their refusal, which the other ranks hear of.
  template <typename Make>
  auto arguments(const Make& make) {
    try {
      return make();
    } catch (const std::exception& error) {
      refuse(error);
      throw;
    }
  }

  /// The operations that `make(i)` gives for `count` tensors of one call, or the refusal of that call.
  template <typename Make>
  [[nodiscard]] ops::Operations operations(const CallPlace& place, std::size_t count,
                                           const Make& make) {
    return arguments([&] {
      check_most(place, "tensors", ops::kMostOfSeries, count);
      ops::Operations parts;
      for (std::size_t i = 0; i < count; ++i) {
        parts.push_back(make(i));
      }
      return parts;
    });
  }
  /// Starts the operation that `make()` gives, or refuses its call.
  template <typename Make>
  [[nodiscard]] bluefog::Work submit(const Make& make) {
    return submit_operation(arguments(make));
  }

  using Start = c10::function_ref<void(const CallPlace& place, Calls& calls)>;
  /// The work of what `start` starts. @param call its name, for messages. @param source as
  /// `GroupWork`'s.
  WorkHandle started(const Manner& manner, std::string_view call, Tensors result, Start start,
                     int source = -1);

  /// Calls that were begun, also those that were refused.
  [[nodiscard]] std::uint64_t count() const noexcept { return count_; }

  /// The timeout of calls from now on that bring none; zero: as the context has it.
  void set_timeout(std::chrono::milliseconds timeout) noexcept { timeout_.store(timeout); }

 private:
  /// @throws StateError in a fork of the rank's process.
  void check_home(std::string_view call) const;
  void refuse(const std::exception& error);
  [[nodiscard]] bluefog::Work submit_operation(std::shared_ptr<Operation> operation);

  Context& context_;
  std::shared_ptr<const GroupParts> parts_;
  std::atomic<std::uint64_t> count_{0};
  std::atomic<std::chrono::milliseconds> timeout_{std::chrono::milliseconds(0)};
};

}  // namespace bluefog::c10d_backend
