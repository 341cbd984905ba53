#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "bluefog_cpp/base/system_limits.hpp"
#include "bluefog_cpp/error.hpp"
#include "tools/bfrun/job/descriptor.hpp"

namespace bluefog::bfrun {

/// @throws TransportError with what the system says of its last call.
[[noreturn]] inline void fail(const char* what) {
  throw TransportError(fmt::format("{}: {}", what, reason_of(errno)));
}

struct Pipe {
  Descriptor read_end;
  Descriptor write_end;
};

/// Programs that are started do not get it. @throws TransportError.
[[nodiscard]] inline Pipe make_pipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    fail("pipe");
  }
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

}  // namespace bluefog::bfrun
