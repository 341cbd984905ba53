#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

#include "bluefog_cpp/buffer_view.hpp"
#include "ops/allreduce.hpp"
#include "python/c10d/tensors.hpp"

namespace bluefog::c10d_backend {

/// The reduction of a tensor's values. The sum of bools is their or, as in torch's backends.
/// @throws UnsupportedError for a reduction that this library does not have.
[[nodiscard]] ops::Reduction reduction_of(const CallPlace& place, const ::c10d::ReduceOp& rule,
                                          const at::Tensor& tensor);

/// The tensor's values for a reduction. Those of complex numbers are pairs, which are only added.
/// @throws UnsupportedError for complex numbers that are not added; errors of `values_of`.
[[nodiscard]] BufferView operand_of(const CallPlace& place, const at::Tensor& tensor,
                                    const ::c10d::ReduceOp& rule, Order order, Keeps keeps);

/// @throws InvalidArgument for a list of another length.
void check_count(const CallPlace& place, std::string_view what, std::size_t expected,
                 std::size_t found);

/// @throws InvalidArgument for a longer list.
void check_most(const CallPlace& place, std::string_view what, std::size_t most, std::size_t found);

/// The root of a call among `size` ranks. @throws InvalidArgument where it is none of them.
[[nodiscard]] int root_of(const CallPlace& place, std::int64_t root, int size);

/// A tensor of a list, one for each rank, as a part; with the dtype of `like`.
/// @throws InvalidArgument if it has another dtype; errors of `bytes_of`.
[[nodiscard]] BufferView part_of(const CallPlace& place, const at::Tensor& part,
                                 const at::Tensor& like, Keeps keeps);

/// `part_of` each. @tparam View `BufferView` for results, `ConstBufferView` for inputs.
template <typename View>
[[nodiscard]] std::vector<View> parts_of(const CallPlace& place,
                                         const std::vector<at::Tensor>& parts,
                                         const at::Tensor& like, Keeps keeps) {
  std::vector<View> views;
  views.reserve(parts.size());
  for (const at::Tensor& part : parts) {
    views.push_back(part_of(place, part, like, keeps));
  }
  return views;
}

/// The same views for a call that only reads them.
[[nodiscard]] std::vector<ConstBufferView> as_inputs(const std::vector<BufferView>& views);

}  // namespace bluefog::c10d_backend
