#include "bluefog_cpp/base/system_limits.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstring>

namespace bluefog {

void raise_descriptor_limit() noexcept {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
    limit.rlim_cur = limit.rlim_max;
    (void)::setrlimit(RLIMIT_NOFILE, &limit);
  }
}

std::string reason_of(int error) {
  std::string text = std::strerror(error);
  rlimit limit{};
  if (error == EMFILE && ::getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    text += fmt::format(": this process may have {} descriptors (RLIMIT_NOFILE, ulimit -n)",
                        limit.rlim_cur);
  } else if (error == ENOMEM && ::getrlimit(RLIMIT_AS, &limit) == 0 &&
             limit.rlim_cur != RLIM_INFINITY) {
    text += fmt::format(": this process may have {} bytes of addresses (RLIMIT_AS, ulimit -v)",
                        limit.rlim_cur);
  }
  return text;
}

}  // namespace bluefog
