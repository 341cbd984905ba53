#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>
#include <vector>

#include "bluefog_cpp/buffer_view.hpp"

namespace bluefog::c10d_backend {

class HostCopies;

/// The call that a tensor is for, in messages: "rank 1, all_gather".
struct CallPlace {
  int rank = 0;
  std::string_view call{};
  /// Those of its tensors on CUDA devices, and of those that lie otherwise than it needs.
  HostCopies* copies = nullptr;
  /// The tensors that it writes; null: none.
  const std::vector<at::Tensor>* results = nullptr;
};

[[nodiscard]] std::string where(const CallPlace& place);

/// Whether the view keeps the tensor's memory alive: not needed where the call ends before its
/// caller goes on.
enum class Keeps : std::uint8_t { Memory, Nothing };

/// The order in which a call takes a tensor's elements.
enum class Order : std::uint8_t {
  AsTheyLie,  ///< where they lie side by side, in any order of dimensions; else by rows
  ByRows,     ///< that of a contiguous tensor
};

/// The elements of a tensor; complex ones as pairs of real ones. For reductions.
/// Of a tensor on a CUDA device, and of one whose elements lie in another order or with gaps, these
/// are those of its copy on the host.
/// @throws InvalidArgument for a tensor that is sparse, and for a result whose elements share
///   memory; UnsupportedError for dtypes that cannot be added and tensors on other devices.
[[nodiscard]] BufferView values_of(CallPlace place, const at::Tensor& tensor, Order order,
                                   Keeps keeps);

/// The same for calls that move bytes, which take any dtype.
[[nodiscard]] BufferView bytes_of(CallPlace place, const at::Tensor& tensor, Order order,
                                  Keeps keeps);

/// What the ranks of a call compare of a tensor beside its buffer: its dtype where that of the buffer
/// is another one, and the order of its elements where that is not by rows. Nothing for most tensors.
[[nodiscard]] std::string form_of(const at::Tensor& tensor, Order order);

/// The same of tensor number `index` of a call's `count`, each of which goes by itself.
[[nodiscard]] std::string form_of(const at::Tensor& tensor, Order order, std::size_t index,
                                  std::size_t count);

/// The equal parts of a tensor by rows, along its first dimension, by rank.
/// @throws InvalidArgument where it does not have `parts` times `elements` elements.
[[nodiscard]] std::vector<BufferView> equal_parts(CallPlace place, std::string_view what,
                                                  const BufferView& whole, std::int64_t parts,
                                                  std::int64_t elements);

/// The parts of a tensor by rows with these numbers of rows; equal ones where there are none.
/// @throws InvalidArgument where they do not add up to the rows that there are.
[[nodiscard]] std::vector<BufferView> parts_by_rows(CallPlace place, std::string_view what,
                                                    const BufferView& whole,
                                                    const at::Tensor& tensor,
                                                    const std::vector<std::int64_t>& rows,
                                                    std::int64_t ranks);

/// @throws InvalidArgument for tensors of different dtypes.
void check_same_dtype(CallPlace place, const at::Tensor& one, const at::Tensor& other);

/// The one tensor of a list. @throws InvalidArgument for another number of them.
[[nodiscard]] at::Tensor& only(CallPlace place, std::string_view what,
                               std::vector<at::Tensor>& tensors);

/// "float32[3, 4] on cpu".
[[nodiscard]] std::string text_of(const at::Tensor& tensor);

}  // namespace bluefog::c10d_backend
