#include "bluefog_cpp/device/peer_memory.hpp"

#include <algorithm>
#include <new>
#include <thread>

#include "bluefog_cpp/base/alignment.hpp"
#include "bluefog_cpp/deadline.hpp"
#include "bluefog_cpp/error.hpp"

namespace bluefog {
namespace {

using namespace std::chrono_literals;

constexpr auto kLeavePeriod = 50us;
/// Blocks up to this size share a chunk.
constexpr std::size_t kLongestShared = kDevicePage / 2;

}  // namespace

PeerMemory::PeerMemory(std::shared_ptr<gpu::CudaApi> cuda, int device, shm::HostMemory& host,
                       int rank, std::shared_ptr<const std::atomic<bool>> is_stuck)
    : cuda_(std::move(cuda)),
      device_(device),
      host_(host),
      is_stuck_(std::move(is_stuck)),
      board_place_(host.allocate(sizeof(Board))),
      board_(new(host.at(rank, board_place_, sizeof(Board))) Board()),
      events_(std::make_shared<gpu::EventPool>(cuda_, device)) {
  const gpu::DeviceScope scope = enter();
  stream_ = cuda_->make_stream();
}

PeerMemory::~PeerMemory() { leave(1ns); }

PeerMemory::Block PeerMemory::allocate(std::size_t bytes) {
  const std::size_t taken = round_up(std::max<std::size_t>(bytes, 1), kDeviceAlignment);
  const std::uint64_t number = chunk_for(taken);
  Chunk& chunk = chunks_.at(number);
  const Block block{.data = chunk.memory + chunk.end, .chunk = number};
  chunk.end += taken;
  ++chunk.blocks;
  return block;
}

std::uint64_t PeerMemory::chunk_for(std::size_t bytes) {
  if (bytes <= kLongestShared) {
    for (const auto& [number, chunk] : chunks_) {
      if (chunk.bytes == kDevicePage && chunk.bytes - chunk.end >= bytes) {
        return number;
      }
    }
  }
  const gpu::DeviceScope scope = enter();
  Chunk chunk{.bytes = round_up(bytes, kDevicePage)};
  chunk.memory = static_cast<std::byte*>(cuda_->allocate(chunk.bytes));
  chunk.shown.here = chunk.memory;
  try {
    chunk.shown.handle = cuda_->export_memory(chunk.memory);
  } catch (const CudaError&) {
    cuda_->free(chunk.memory);
    throw;
  }
  chunks_.emplace(next_chunk_, chunk);
  return next_chunk_++;
}

ShownBlock PeerMemory::show(const Block& block) const {
  const Chunk& chunk = chunks_.at(block.chunk);
  return {.memory = chunk.shown,
          .chunk = block.chunk,
          .offset = static_cast<std::uint64_t>(block.data - chunk.memory),
          .process = cuda_->process(),
          .board = board_place_,
          .device = device_};
}

void PeerMemory::release(const Block& block) {
  const auto chunk = chunks_.find(block.chunk);
  if (chunk == chunks_.end() || --chunk->second.blocks > 0) {
    return;
  }
  const gpu::DeviceScope scope = enter();
  std::byte* const memory = chunk->second.memory;
  chunks_.erase(chunk);
  cuda_->free(memory);
}

void PeerMemory::meet(int rank, const ShownBlock& shown) {
  boards_[rank] = reinterpret_cast<const Board*>(host_.at(rank, shown.board, sizeof(Board)));
}

std::byte* PeerMemory::open(int rank, const ShownBlock& shown) {
  const gpu::DeviceScope scope = enter();
  Import& import = imports_[{rank, shown.chunk}];
  if (import.opened == 0) {
    import.is_foreign = shown.process != cuda_->process();
    if (import.is_foreign) {
      import.memory = cuda_->open_memory(shown.memory.handle);
    } else {
      if (shown.device != device_) {
        cuda_->reach(shown.device);
      }
      import.memory = shown.memory.here;
    }
  }
  ++import.opened;
  return static_cast<std::byte*>(import.memory) + shown.offset;
}

void PeerMemory::close(int rank, const ShownBlock& shown) {
  const auto import = imports_.find({rank, shown.chunk});
  if (import == imports_.end() || --import->second.opened > 0) {
    return;
  }
  const Import last = import->second;
  imports_.erase(import);
  if (last.is_foreign && last.memory != nullptr) {
    const gpu::DeviceScope scope = enter();
    cuda_->close_memory(last.memory);
  }
}

void PeerMemory::note_stuck(gpu::Event event) {
  const std::scoped_lock lock(stuck_mutex_);
  stuck_.push_back(std::move(event));
}

bool PeerMemory::is_idle() {
  if (is_stuck_->load()) {
    return false;
  }
  const std::scoped_lock lock(stuck_mutex_);
  if (stuck_.empty()) {
    return true;
  }
  try {
    const gpu::DeviceScope scope = enter();
    const auto is_under_way = [this](const gpu::Event& event) {
      return !cuda_->has_happened(event.get());
    };
    if (std::ranges::any_of(stuck_, is_under_way)) {
      return false;
    }
  } catch (const CudaError&) {  // NOLINT: a device that has failed does nothing any more
  }
  stuck_.clear();
  return true;
}

bool PeerMemory::have_others_left() const {
  return std::ranges::all_of(boards_, [](const auto& board) {
    return board.second->has_left.load(std::memory_order_acquire) != 0;
  });
}

void PeerMemory::leave(std::chrono::nanoseconds longest) noexcept {
  if (has_left_.exchange(true)) {
    return;
  }
  try {
    give_all_back(longest);
  } catch (const Error&) {  // NOLINT: of a device that has failed; the process's end does the rest
  }
}

void PeerMemory::give_all_back(std::chrono::nanoseconds longest) {
  if (!is_idle()) {
    return;  // the device may still use all of it: better lost than used again
  }
  const gpu::DeviceScope scope = enter();
  for (const auto& [place, import] : std::exchange(imports_, {})) {
    if (import.is_foreign && import.memory != nullptr) {
      cuda_->close_memory(import.memory);
    }
  }
  cuda_->free_stream(std::exchange(stream_, nullptr));
  board_->has_left.store(1, std::memory_order_release);
  if (chunks_.empty()) {
    return;
  }
  const Deadline deadline = Deadline::after(longest);
  while (!have_others_left()) {
    if (deadline.expired()) {
      return;
    }
    std::this_thread::sleep_for(kLeavePeriod);
  }
  for (const auto& [number, chunk] : std::exchange(chunks_, {})) {
    cuda_->free(chunk.memory);
  }
}

}  // namespace bluefog
