#include "examples/train_images/peak_memory.hpp"

#include <fstream>
#include <string>

namespace bluefog::examples {

std::int64_t peak_resident_bytes() {
  std::ifstream status("/proc/self/status");
  std::string key;
  while (status >> key) {
    if (key == "VmHWM:") {
      std::int64_t kibibytes = 0;
      status >> kibibytes;
      return kibibytes * 1024;
    }
    std::getline(status, key);
  }
  return 0;
}

}  // namespace bluefog::examples
