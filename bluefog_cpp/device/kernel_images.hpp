#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace bluefog::gpu {

/// A fat binary and the names of its kernels.
struct KernelImage {
  std::span<const std::byte> image{};
  std::vector<const char*> names{};
};

/// Called before `main` by the library that brings the image: `use_device` then loads its kernels,
/// so that a device that cannot run them is known before any call needs them. @return true.
bool register_kernels(KernelImage image);

/// The images, in no order.
[[nodiscard]] const std::vector<KernelImage>& registered_kernels();

}  // namespace bluefog::gpu
