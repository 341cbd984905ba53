#include "tools/bfrun/job/input_pump.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

namespace bluefog::bfrun {

InputPump::InputPump(Descriptor to_rank) : to_rank_(std::move(to_rank)) {
  if (to_rank_.get() >= 0) {
    fcntl(to_rank_.get(), F_SETFL, O_NONBLOCK);
  }
}

pollfd InputPump::source() const {
  if (to_rank_.get() < 0) {
    return {-1, 0, 0};
  }
  if (!waiting_.empty()) {
    return {to_rank_.get(), POLLOUT, 0};
  }
  // In the background, reading would stop this process.
  const bool is_in_foreground = tcgetpgrp(STDIN_FILENO) == getpgrp();
  return {is_in_foreground ? STDIN_FILENO : -1, POLLIN, 0};
}

void InputPump::serve(const pollfd& source) {
  if (source.fd < 0 || source.revents == 0) {
    return;
  }
  if (source.fd == STDIN_FILENO) {
    std::array<char, 4096> typed{};
    const ssize_t count = read(STDIN_FILENO, typed.data(), typed.size());
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) {
      return;
    }
    if (count <= 0) {
      return to_rank_.reset();
    }
    waiting_.assign(typed.data(), static_cast<std::size_t>(count));
    return;
  }
  const ssize_t count = write(to_rank_.get(), waiting_.data(), waiting_.size());
  if (count < 0 && errno != EINTR && errno != EAGAIN) {
    return to_rank_.reset();
  }
  if (count > 0) {
    waiting_.erase(0, static_cast<std::size_t>(count));
  }
}

}  // namespace bluefog::bfrun
