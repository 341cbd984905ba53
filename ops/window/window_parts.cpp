#include "ops/window/window_parts.hpp"

#include <fmt/format.h>

#include <chrono>
#include <thread>

#include "bluefog_cpp/error.hpp"

namespace bluefog::ops {

std::optional<int> WindowParts::first_freed() const {
  for (std::size_t rank = 0; rank < parts_.size(); ++rank) {
    if (parts_[rank].memory && parts_[rank].memory->is_freed()) {
      return static_cast<int>(rank);
    }
  }
  return std::nullopt;
}

const WindowMemory* WindowParts::reachable(int rank, std::string_view call) const {
  const auto& memory = of(rank).memory;
  if (!memory) {
    return nullptr;
  }
  const auto cause_of_death = window_.hub().cause_of_death(rank);
  // The flag is read last: a rank that has finished sets it before it leaves, maybe in between.
  if (memory->is_freed()) {
    throw WindowGoneError(rank, fmt::format("{}: rank {} has freed or destroyed it, or has ended",
                                            window_.where(call), rank));
  }
  if (cause_of_death) {
    throw PeerFailure(rank,
                      fmt::format("{}, rank {}: {}", window_.where(call), rank, *cause_of_death));
  }
  return &*memory;
}

WindowServer::Answer WindowParts::ask(WindowCall& call, WindowWait::For what, int rank,
                                      WindowMessage request, std::span<const std::byte> payload,
                                      std::span<std::byte> room) const {
  request.dtype = window_.tensor().dtype;
  request.window = window_.number();
  OneSided& hub = window_.hub();
  WindowWait wait(call, what, rank);
  const auto answer =
      hub.server()->ask(rank, request, payload, room,
                        {.deadline = hub.deadline(),
                         .where = [this, &call] { return window_.where(call.name()); },
                         .waiting = [&wait](int holder) { wait.goes_on(holder); }});
  wait.is_over();
  return answer;
}

void WindowParts::notify(int rank, WindowMessage request) const {
  request.window = window_.number();
  window_.hub().server()->notify(rank, request);
}

void WindowParts::read_tensor(const WindowCall& call, int rank, std::byte* to) const {
  try {
    window_.hub().reader().read(rank, of(rank).address, to, window_.tensor().bytes());
  } catch (const PeerFailure& failure) {
    // Its process is gone. How it ended, or that it had finished, is known a moment later.
    const Deadline deadline = window_.hub().deadline();
    do {
      (void)reachable(rank, call.name());
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    } while (!deadline.expired());
    throw PeerFailure(rank, fmt::format("{}: {}", window_.where(call.name()), failure.what()));
  } catch (const TransportError& error) {
    throw TransportError(fmt::format("{}: {}", window_.where(call.name()), error.what()));
  }
}

}  // namespace bluefog::ops
