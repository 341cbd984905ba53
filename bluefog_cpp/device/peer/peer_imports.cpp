#include "bluefog_cpp/device/peer/peer_imports.hpp"

#include <utility>

namespace bluefog {

const std::byte* PeerImports::memory(std::size_t slot) {
  const SharedHandle& shown = board_.slots[slot].memory;
  if (!is_foreign_) {
    return static_cast<const std::byte*>(shown.here);
  }
  void*& opened = memory_[slot];
  if (opened == nullptr) {
    opened = cuda_.open_memory(shown.handle);
  }
  return static_cast<const std::byte*>(opened);
}

gpu::EventHandle PeerImports::filled(std::size_t slot) { return event(board_.slots[slot].filled); }

gpu::EventHandle PeerImports::read(std::uint64_t call) {
  return event(board_.read[call % PeerBoard::kReadEvents]);
}

gpu::EventHandle PeerImports::event(const SharedHandle& shown) {
  if (!is_foreign_) {
    return shown.here;
  }
  gpu::EventHandle& opened = events_[&shown];
  if (opened == nullptr) {
    opened = cuda_.open_event(shown.handle);
  }
  return opened;
}

void PeerImports::close() {
  for (const auto& [slot, memory] : std::exchange(memory_, {})) {
    if (memory != nullptr) {
      cuda_.close_memory(memory);
    }
  }
  for (const auto& [shown, event] : std::exchange(events_, {})) {
    if (event != nullptr) {
      cuda_.free_event(event);
    }
  }
}

}  // namespace bluefog
