#include "tests/support/gpu/memory_book.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace bluefog::testing {
namespace {

/// CUDA's alignment of memory.
constexpr std::size_t kAlignment = 256;

bool is_before(const Clock& clock, int queue, std::uint64_t number) {
  const auto entry = clock.find(queue);
  return entry != clock.end() && entry->second >= number;
}

}  // namespace

void join(Clock& clock, const Clock& other) {
  for (const auto& [queue, number] : other) {
    auto& own = clock[queue];
    own = std::max(own, number);
  }
}

MemoryBook::~MemoryBook() = default;

void* MemoryBook::allocate(std::size_t bytes) {
  Block block{.memory = std::make_unique<std::byte[]>(bytes + kAlignment),
              .bytes = bytes,
              .freed = false,
              .uses = {}};
  std::byte* const raw = block.memory.get();
  std::byte* const begin =
      raw + (kAlignment - reinterpret_cast<std::uintptr_t>(raw) % kAlignment) % kAlignment;
  std::memset(begin, 0xa5, bytes);
  const std::scoped_lock lock(mutex_);
  blocks_.emplace(begin, std::move(block));
  return begin;
}

void MemoryBook::free(void* memory) {
  const std::scoped_lock lock(mutex_);
  const auto entry = blocks_.find(static_cast<const std::byte*>(memory));
  if (entry == blocks_.end() || entry->second.freed) {
    mistakes_.push_back("free of memory that is not allocated");
    return;
  }
  Block& block = entry->second;
  for (const Use& use : block.uses) {
    if (!use.finished) {
      mistakes_.push_back(fmt::format("free of memory that {} still uses", use.what));
      break;
    }
  }
  block.freed = true;  // kept, so that later uses are told from wild addresses
}

MemoryBook::Block* MemoryBook::find(const void* memory, std::size_t bytes) {
  const auto* const begin = static_cast<const std::byte*>(memory);
  auto entry = blocks_.upper_bound(begin);
  if (entry == blocks_.begin()) {
    return nullptr;
  }
  --entry;
  return begin + bytes <= entry->first + entry->second.bytes ? &entry->second : nullptr;
}

void MemoryBook::enqueue(int queue, std::uint64_t number, const Clock& clock,
                         const std::vector<Access>& accesses, const std::string& what) {
  const std::scoped_lock lock(mutex_);
  for (const Access& access : accesses) {
    if (access.bytes == 0) {
      continue;
    }
    Block* const block = find(access.memory, access.bytes);
    if (block == nullptr) {
      mistakes_.push_back(
          fmt::format("{} of {} bytes outside of device memory", what, access.bytes));
    } else if (block->freed) {
      mistakes_.push_back(fmt::format("{} uses memory that was freed", what));
    } else {
      const auto* const begin = static_cast<const std::byte*>(access.memory);
      use(*block,
          {.begin = begin,
           .end = begin + access.bytes,
           .writes = access.writes,
           .queue = queue,
           .number = number,
           .finished = false,
           .what = what},
          clock);
    }
  }
}

void MemoryBook::use(Block& block, const Use& use, const Clock& clock) {
  for (const Use& earlier : block.uses) {
    const bool meet = earlier.begin < use.end && use.begin < earlier.end;
    if (meet && (earlier.writes || use.writes) && earlier.queue != use.queue &&
        !is_before(clock, earlier.queue, earlier.number)) {
      mistakes_.push_back(
          fmt::format("race: {} and {} use the same memory on two streams, and no "
                      "event orders them",
                      earlier.what, use.what));
    }
  }
  std::erase_if(block.uses, [&](const Use& earlier) {
    return earlier.finished && earlier.begin >= use.begin && earlier.end <= use.end &&
           (use.writes || !earlier.writes) &&
           (earlier.queue == use.queue || is_before(clock, earlier.queue, earlier.number));
  });
  block.uses.push_back(use);
}

void MemoryBook::finish(int queue, std::uint64_t number) {
  const std::scoped_lock lock(mutex_);
  for (auto& [begin, block] : blocks_) {
    for (Use& use : block.uses) {
      if (use.queue == queue && use.number == number) {
        use.finished = true;
      }
    }
  }
}

void MemoryBook::report(const std::string& mistake) {
  const std::scoped_lock lock(mutex_);
  mistakes_.push_back(mistake);
}

std::vector<std::string> MemoryBook::mistakes() const {
  const std::scoped_lock lock(mutex_);
  return mistakes_;
}

}  // namespace bluefog::testing
