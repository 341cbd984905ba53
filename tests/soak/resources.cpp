#include <dirent.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/soak/soak.hpp"

namespace bluefog::soak {
namespace {

int entries_of(const char* folder) {
  std::error_code ignored;
  const std::filesystem::directory_iterator entries(folder, ignored);
  return static_cast<int>(std::distance(begin(entries), end(entries)));
}

}  // namespace

Resources Resources::now() {
  std::ifstream file("/proc/self/statm");
  std::int64_t pages = 0;
  std::int64_t resident = 0;
  file >> pages >> resident;
  return {.rss_mib = static_cast<double>(resident * ::sysconf(_SC_PAGESIZE)) / (1 << 20),
          .descriptors = entries_of("/proc/self/fd"),
          .threads = entries_of("/proc/self/task"),
          .shm_entries = entries_of("/dev/shm")};
}

}  // namespace bluefog::soak
