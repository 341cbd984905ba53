#include "bluefog_cpp/base/system_limits.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>

namespace bluefog {

void raise_descriptor_limit() noexcept {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
    limit.rlim_cur = limit.rlim_max;
    (void)::setrlimit(RLIMIT_NOFILE, &limit);
  }
}

std::uint32_t descriptor_limit() noexcept {
  rlimit limit{};
  const bool counts = ::getrlimit(RLIMIT_NOFILE, &limit) == 0 &&
                      limit.rlim_cur <= std::numeric_limits<std::uint32_t>::max();
  return counts ? static_cast<std::uint32_t>(limit.rlim_cur) : 0;
}

bool is_out_of_descriptors(int error) noexcept { return error == EMFILE || error == ENFILE; }

std::uint64_t available_memory() {
  std::ifstream file("/proc/meminfo");
  for (std::string name; file >> name;) {
    if (std::uint64_t kibibytes = 0; name == "MemAvailable:" && file >> kibibytes) {
      return kibibytes * 1024;
    }
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return std::numeric_limits<std::uint64_t>::max();
}

std::string reason_of(int error, const std::string& process) {
  std::string text = std::strerror(error);
  rlimit limit{};
  if (error == EMFILE && descriptor_limit() > 0) {
    text += fmt::format(": {} may have {} descriptors (RLIMIT_NOFILE, ulimit -n)", process,
                        descriptor_limit());
  } else if (error == ENFILE) {
    text +=
        ": all processes of this machine together have as many descriptors as it allows "
        "(fs.file-max)";
  } else if (error == ENOMEM && ::getrlimit(RLIMIT_AS, &limit) == 0 &&
             limit.rlim_cur != RLIM_INFINITY) {
    text += fmt::format(": {} may have {} bytes of addresses (RLIMIT_AS, ulimit -v)", process,
                        limit.rlim_cur);
  }
  return text;
}

}  // namespace bluefog
