#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "bluefog_cpp/one_sided/window_server.hpp"
#include "ops/window/window_call.hpp"
#include "ops/window/window_identity.hpp"
#include "ops/window/window_memory.hpp"

namespace bluefog::ops {

/// The ranks' parts of a window, and this rank's ways to them: memory that it shares with them, and
/// requests to their servers.
class WindowParts {
 public:
  /// A rank's part of the window, as far as this rank needs it.
  struct Part {
    /// Its memory, where this rank shares that.
    std::optional<WindowMemory> memory{};
    /// Its tensor's address in its own memory.
    std::uint64_t address = 0;
    OwnValue own_value = OwnValue::InTensor;
    /// This rank's place among its sources.
    std::size_t own_index = 0;
  };

  explicit WindowParts(const WindowIdentity& window) : window_(window) {}

  /// Adds the part of the next rank, when the window is created.
  void add(const Part& part) { parts_.push_back(part); }
  [[nodiscard]] const Part& of(int rank) const { return parts_[static_cast<std::size_t>(rank)]; }
  /// The first rank whose part has been freed, as far as this rank sees, or nothing.
  [[nodiscard]] std::optional<int> first_freed() const;

  /// The memory of a rank that lives and has the window still; null where it is not shared.
  /// @throws WindowGoneError, PeerFailure.
  [[nodiscard]] const WindowMemory* reachable(int rank, std::string_view call) const;
  /// Asks the server of `rank`, and waits for the answer, as `WindowServer::ask`.
  WindowServer::Answer ask(WindowCall& call, WindowWait::For what, int rank, WindowMessage request,
                           std::span<const std::byte> payload = {},
                           std::span<std::byte> room = {}) const;
  /// Sends the server of `rank` a request that nobody answers.
  void notify(int rank, WindowMessage request) const;
  /// Reads the tensor of a rank of this host in its own memory. @throws PeerFailure,
  /// TransportError.
  void read_tensor(const WindowCall& call, int rank, std::byte* to) const;

 private:
  const WindowIdentity& window_;
  std::vector<Part> parts_;
};

}  // namespace bluefog::ops
