#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

namespace bluefog::c10d_backend {

/// The copies on the host by which a call takes tensors on CUDA devices, and those whose elements
/// do not lie as it needs them. torch makes them, in the order of the stream that is current where
/// the call is made, and where it is waited for.
class HostCopies {
 public:
  /// The copy of a tensor, laid out as `format` says; the same one for the same tensor. Waits for
  /// what its stream has to do before.
  [[nodiscard]] const at::Tensor& of(const at::Tensor& tensor, at::MemoryFormat format);

  [[nodiscard]] bool empty() const noexcept { return copies_.empty(); }

  /// Copies what a call has left for `results` to where they lie. Once: later calls do nothing.
  void bring_back(const std::vector<at::Tensor>& results);

 private:
  /// Tensors with their copies.
  std::vector<std::pair<at::Tensor, at::Tensor>> copies_;
};

}  // namespace bluefog::c10d_backend
