#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string_view>

namespace bluefog {

/// The address of a socket in the abstract namespace, which leaves nothing behind. A name longer
/// than an address keeps its end.
class AbstractAddress {
 public:
  explicit AbstractAddress(std::string_view name) {
    name_.sun_family = AF_UNIX;
    const std::size_t length = std::min(name.size(), sizeof name_.sun_path - 1);
    std::memcpy(name_.sun_path + 1, name.data() + (name.size() - length), length);
    length_ = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  }

  [[nodiscard]] int bind(int socket) const { return ::bind(socket, get(), length_); }
  [[nodiscard]] int connect(int socket) const { return ::connect(socket, get(), length_); }

 private:
  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&name_); }

  sockaddr_un name_{};
  socklen_t length_ = 0;
};

}  // namespace bluefog
