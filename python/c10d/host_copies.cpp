#include "python/c10d/host_copies.hpp"

#include <ATen/Functions.h>

#include <algorithm>

namespace bluefog::c10d_backend {

const at::Tensor& HostCopies::of(const at::Tensor& tensor, at::MemoryFormat format) {
  const auto found =
      std::ranges::find_if(copies_, [&](const auto& known) { return known.first.is_same(tensor); });
  if (found != copies_.end()) {
    return found->second;
  }
  return copies_
      .emplace_back(tensor,
                    tensor.detach().to(at::kCPU, /*non_blocking=*/false, /*copy=*/true, format))
      .second;
}

void HostCopies::bring_back(const std::vector<at::Tensor>& results) {
  for (const auto& [tensor, copy] : std::exchange(copies_, {})) {
    const auto is_this = [&one = tensor](const at::Tensor& result) { return result.is_same(one); };
    if (std::ranges::any_of(results, is_this)) {
      tensor.detach().copy_(copy, /*non_blocking=*/false);
    }
  }
}

}  // namespace bluefog::c10d_backend
