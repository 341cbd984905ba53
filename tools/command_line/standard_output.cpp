#include "tools/command_line/standard_output.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <iostream>
#include <stdexcept>
#include <system_error>

namespace bluefog::command_line {
namespace {

[[noreturn]] void fail(int reason) {
  throw std::runtime_error(fmt::format(
      "cannot write standard output: {}",
      reason != 0 ? std::generic_category().message(reason) : "a part of it was lost before"));
}

}  // namespace

void print(std::string_view text) {
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) {
    fail(errno);
  }
  flush_output();
}

bool fill_closed_output() {
  if (fcntl(STDOUT_FILENO, F_GETFD) != -1) {
    return false;
  }
  const int null = open("/dev/null", O_WRONLY);
  if (null >= 0 && null != STDOUT_FILENO) {
    dup2(null, STDOUT_FILENO);
    close(null);
  }
  return true;
}

void flush_output() {
  errno = 0;
  std::cout.flush();
  const bool is_lost = std::fflush(stdout) != 0 || std::ferror(stdout) != 0 || !std::cout;
  if (is_lost) {
    fail(errno);
  }
}

}  // namespace bluefog::command_line
