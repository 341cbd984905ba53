#include "bluefog_cpp/device/peer/mailbox.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "bluefog_cpp/base/alignment.hpp"
#include "bluefog_cpp/device/rank_problems.hpp"
#include "bluefog_cpp/error.hpp"

namespace bluefog {
namespace {

/// The sizes of slots for payloads of many lengths are a quarter apart.
std::size_t rounded_to_quarters(std::size_t size) {
  std::size_t rounded = kDevicePage;
  while (rounded < size) {
    rounded = round_up(rounded + rounded / 4, kDevicePage);
  }
  return rounded;
}

}  // namespace

SharedHandle show_event(gpu::CudaApi& cuda, gpu::EventHandle event, bool is_exported) {
  SharedHandle shown{.here = event};
  if (is_exported) {
    shown.handle = cuda.export_event(event);
  }
  return shown;
}

std::size_t Mailbox::take(std::size_t bytes, const std::function<bool(const Slot&)>& is_read) {
  std::size_t best = slots_.size();
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    const bool is_better = best == slots_.size() || slot.bytes < slots_[best].bytes;
    if (i != last_ && slot.bytes >= bytes && is_better && is_read(slot)) {
      best = i;
    }
  }
  last_ = best < slots_.size() ? best : make(bytes);
  return last_;
}

std::size_t Mailbox::make(std::size_t bytes) {
  const std::size_t number = slots_.size();
  const std::size_t size = round_up(bytes, kDevicePage);
  const bool lengths_vary = std::ranges::any_of(slots_, [size](const Slot& slot) {
    return slot.bytes != size && slot.bytes > size / 2 && slot.bytes < 2 * size;
  });
  if (number == PeerBoard::kMostSlots) {
    throw TransportError(
        fmt::format("expected at most {} payloads that other ranks have not fetched yet", number));
  }
  // The list owns the slot before anything may fail.
  Slot& slot = slots_.emplace_back();
  SharedSlot& shown = board_.slots[number];
  try {
    slot.bytes = lengths_vary ? rounded_to_quarters(size) : size;
    slot.memory = static_cast<std::byte*>(cuda_.allocate(slot.bytes));
    slot.filled = cuda_.make_shared_event();
    shown.memory.here = slot.memory;
    shown.filled = show_event(cuda_, slot.filled, is_exported_);
    if (is_exported_) {
      shown.memory.handle = cuda_.export_memory(slot.memory);
    }
  } catch (const CudaError&) {  // nobody knows of it
    const Slot failed = std::move(slot);
    slots_.pop_back();
    const auto also = problem_of([&] { free(failed); });
    throw;
  }
  return number;
}

void Mailbox::free(const Slot& slot) {
  if (slot.filled != nullptr) {
    cuda_.free_event(slot.filled);
  }
  if (slot.memory != nullptr) {
    cuda_.free(slot.memory);
  }
}

void Mailbox::free_all() {
  for (const Slot& slot : std::exchange(slots_, {})) {
    free(slot);
  }
}

}  // namespace bluefog
