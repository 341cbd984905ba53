#include "bluefog_cpp/device/peer/peer_link.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <random>
#include <string>
#include <thread>
#include <utility>

#include "bluefog_cpp/base/linger.hpp"
#include "bluefog_cpp/device/calls/payload_layout.hpp"
#include "bluefog_cpp/error.hpp"

namespace bluefog {
namespace {

using namespace std::chrono_literals;

constexpr auto kLookPeriod = 50us;
/// The longest wait for a word's copy, which takes far less on a device that is not stuck.
constexpr auto kLongestGreeting = 10s;

std::uint64_t random_word() {
  std::random_device random;
  return (std::uint64_t{random()} << 32U) | random();
}

std::vector<std::string> one_host(int size) {
  return std::vector<std::string>(static_cast<std::size_t>(size), "one host");
}

}  // namespace

std::unique_ptr<PeerLink> PeerLink::connect(Bootstrap& bootstrap, const Parts& parts,
                                            Deadline deadline, RankProblem& problem) {
  std::unique_ptr<PeerLink> link(new PeerLink(bootstrap, parts));
  const auto all_can = [&](auto&& step) {
    problem = first_problem(bootstrap, problem_of([&] {
                              const gpu::DeviceScope scope(*parts.cuda, parts.device);
                              step();
                            }),
                            deadline);
    return problem.rank < 0;
  };
  link->shared_ =
      shm::HostMemory::connect(bootstrap, one_host(bootstrap.size()), parts.arena, deadline);
  if (all_can([&] { link->show(); }) && all_can([&] { link->open(); }) &&
      all_can([&] { link->greet(); })) {
    return link;
  }
  const RankProblem first = problem;
  (void)all_can([&] { link->let_go(); });
  (void)all_can([&] { link->free_own(); });
  problem = first;
  return nullptr;
}

PeerLink::PeerLink(Bootstrap& bootstrap, const Parts& parts)
    : parts_(parts), rank_(bootstrap.rank()), size_(bootstrap.size()) {}

PeerLink::~PeerLink() = default;

void PeerLink::show() {
  for (int rank = 0; rank < size_; ++rank) {
    if (!shared_->reaches(rank)) {
      throw UnsupportedError(fmt::format("it shares no memory with rank {}", rank));
    }
  }
  const std::uint64_t place = shared_->allocate(sizeof(PeerBoard));  // the first one
  board_ = new (shared_->at(rank_, place, sizeof(PeerBoard))) PeerBoard();
  board_->device = parts_.device;
  board_->process = parts_.cuda->process();
  board_->greeting = random_word();
}

void PeerLink::open() {
  gpu::CudaApi& cuda = *parts_.cuda;
  bool is_exported = false;
  for (int rank = 0; rank < size_; ++rank) {
    if (rank == rank_) {
      others_.emplace_back();
      continue;
    }
    const auto& board = *reinterpret_cast<const PeerBoard*>(
        shared_->at(rank, shared_->first_place_of(rank), sizeof(PeerBoard)));
    const auto& other =
        others_.emplace_back(std::make_unique<PeerImports>(cuda, board, board_->process));
    is_exported = is_exported || other->is_foreign();
    if (!other->is_foreign() && board.device != parts_.device) {
      cuda.reach(board.device);
    }
  }
  for (SharedHandle& shown : board_->read) {
    read_.push_back(cuda.make_shared_event());
    shown = show_event(cuda, read_.back(), is_exported);
    cuda.record(read_.back(),
                parts_.stream);  // others may wait for it before there is anything to read
  }
  mailbox_ = std::make_unique<Mailbox>(cuda, *board_, is_exported);
  Mailbox::Slot& slot = mailbox_->slot(mailbox_->take(sizeof board_->greeting, is_read()));
  for (int rank = 0; rank < size_; ++rank) {
    if (rank != rank_) {
      slot.readers.push_back(rank);
    }
  }
  gpu::MemoryBlock word = parts_.staging->take(sizeof board_->greeting);
  std::memcpy(word.data(), &board_->greeting, sizeof board_->greeting);
  cuda.copy(slot.memory, word.data(), sizeof board_->greeting, parts_.stream);
  cuda.record(slot.filled, parts_.stream);
  keep_until_happened(std::move(word), slot.filled);
}

void PeerLink::greet() {
  gpu::CudaApi& cuda = *parts_.cuda;
  std::uint64_t greeting = 0;
  for (int rank = 0; rank < size_; ++rank) {
    PeerImports* const other = others_[static_cast<std::size_t>(rank)].get();
    if (other == nullptr) {
      continue;
    }
    gpu::MemoryBlock word = parts_.staging->take(sizeof greeting);
    cuda.wait(parts_.stream, other->filled(0));
    cuda.copy(word.data(), other->memory(0), sizeof greeting, parts_.stream);
    cuda.record(read_[0], parts_.stream);
    (void)other->read(0);
    keep_until_happened(std::move(word), read_[0], &greeting);
    if (greeting != other->board().greeting) {
      throw UnsupportedError(
          fmt::format("what it reads in the device memory of rank {} is not what is there", rank));
    }
  }
}

void PeerLink::keep_until_happened(gpu::MemoryBlock word, gpu::EventHandle event,
                                   std::uint64_t* read) {
  const Deadline deadline = Deadline::after(kLongestGreeting);
  while (!parts_.cuda->has_happened(event)) {
    if (deadline.expired()) {
      word.lose();
      throw TimeoutError("its device does not copy a word in time");
    }
    std::this_thread::sleep_for(kLookPeriod);
  }
  if (read != nullptr) {
    std::memcpy(read, word.data(), sizeof *read);
  }
}

std::function<bool(const Mailbox::Slot&)> PeerLink::is_read() const {
  return [this](const Mailbox::Slot& slot) {
    return std::ranges::all_of(slot.readers, [&](int reader) {
      const PeerBoard& board = others_[static_cast<std::size_t>(reader)]->board();
      return board.over.load(std::memory_order_acquire) >= slot.call;
    });
  };
}

void PeerLink::offer(std::uint64_t call, std::span<DeviceSend> sends) {
  board_->over.store(call - 1, std::memory_order_release);
  PayloadLayout layout;
  const DeviceSend* previous = nullptr;
  for (DeviceSend& send : sends) {
    if (previous != nullptr && previous->data == send.data && previous->bytes == send.bytes) {
      send.offer = previous->offer;
    } else {
      send.offer.offset = layout.add(send.bytes, send.data);
    }
    previous = &send;
  }
  if (layout.bytes() == 0) {
    return;
  }
  gpu::CudaApi& cuda = *parts_.cuda;
  const std::size_t number = mailbox_->take(layout.bytes(), is_read());
  Mailbox::Slot& slot = mailbox_->slot(number);
  for (const int reader : slot.readers) {
    cuda.wait(parts_.stream, others_[static_cast<std::size_t>(reader)]->read(slot.call));
  }
  slot.call = call;
  slot.readers.clear();
  std::byte* last = nullptr;
  for (DeviceSend& send : sends) {
    send.offer.slot = number;
    slot.readers.push_back(send.reader);
    std::byte* const place = slot.memory + send.offer.offset;
    if (std::exchange(last, place) != place) {
      cuda.copy(place, send.data, send.bytes, parts_.stream);
    }
  }
  cuda.record(slot.filled, parts_.stream);
}

void PeerLink::transfer(std::span<const DeviceSend> /*sends*/, std::span<DeviceReceive> receives) {
  gpu::CudaApi& cuda = *parts_.cuda;
  for (DeviceReceive& receive : receives) {
    if (receive.bytes == 0) {
      continue;
    }
    PeerImports& source = *others_[static_cast<std::size_t>(receive.source)];
    cuda.wait(parts_.stream, source.filled(receive.offer.slot));
    const std::byte* const payload = source.memory(receive.offer.slot) + receive.offer.offset;
    if (receive.place == nullptr) {
      receive.data = payload;
    } else {
      cuda.copy(receive.place, payload, receive.bytes, parts_.stream);
      receive.data = receive.place;
    }
    has_read_ = true;
  }
}

void PeerLink::note_read(std::uint64_t call) {
  if (std::exchange(has_read_, false)) {
    parts_.cuda->record(read_[call % read_.size()], parts_.stream);
  }
}

// A rank that leaves says so when its device is done, and does not free what others have open.
bool PeerLink::has_delivered(int rank) const {
  const auto& other = others_[static_cast<std::size_t>(rank)];
  return other->board().has_left.load(std::memory_order_acquire) != 0;
}

void PeerLink::let_go() {
  for (const auto& other : others_) {
    if (other) {
      other->close();
    }
  }
  if (board_ != nullptr) {
    board_->has_left.store(1, std::memory_order_release);
  }
}

void PeerLink::free_own() {
  if (mailbox_) {
    mailbox_->free_all();
  }
  for (const gpu::EventHandle event : std::exchange(read_, {})) {
    parts_.cuda->free_event(event);
  }
}

bool PeerLink::have_all_left() const {
  return std::ranges::all_of(others_, [](const auto& other) {
    return !other || other->board().has_left.load(std::memory_order_acquire) != 0;
  });
}

void PeerLink::close(bool is_idle) {
  if (!is_idle) {
    return;  // the device may still use all of it: better lost than used again
  }
  let_go();
  const Deadline deadline = Deadline::after(linger::within(linger::kDeviceMemory, parts_.timeout));
  while (!have_all_left() && !deadline.expired()) {
    std::this_thread::sleep_for(kLookPeriod);
  }
  if (have_all_left()) {
    free_own();
  }
}

}  // namespace bluefog
