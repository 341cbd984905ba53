#include "examples/train_images/peak_memory.hpp"

#include <malloc.h>

#include <fstream>
#include <string>
#include <string_view>

namespace bluefog::examples {
namespace {

std::int64_t status_bytes(std::string_view name) {
  std::ifstream status("/proc/self/status");
  std::string key;
  while (status >> key) {
    if (key == name) {
      std::int64_t kibibytes = 0;
      status >> kibibytes;
      return kibibytes * 1024;
    }
    std::getline(status, key);
  }
  return 0;
}

}  // namespace

std::int64_t peak_resident_bytes() { return status_bytes("VmHWM:"); }

std::int64_t resident_bytes() { return status_bytes("VmRSS:"); }

void restart_peak() {
  malloc_trim(0);
  std::ofstream("/proc/self/clear_refs") << "5";
}

}  // namespace bluefog::examples
