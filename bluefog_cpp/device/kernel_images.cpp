#include "bluefog_cpp/device/kernel_images.hpp"

#include <utility>

namespace bluefog::gpu {
namespace {

std::vector<KernelImage>& images() {
  static std::vector<KernelImage> list;
  return list;
}

}  // namespace

bool register_kernels(KernelImage image) {
  images().push_back(std::move(image));
  return true;
}

const std::vector<KernelImage>& registered_kernels() { return images(); }

}  // namespace bluefog::gpu
