#include "pipeline/runtime/activation_cache.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>

#include "bluefog_cpp/base/alignment.hpp"
#include "bluefog_cpp/context/context_core.hpp"
#include "bluefog_cpp/error.hpp"
#include "bluefog_cpp/transport/host_memory.hpp"
#include "ops/calls/allgather_parts.hpp"
#include "optimizers/buckets/fingerprint.hpp"
#include "optimizers/checks/agreement.hpp"

namespace bluefog::pipeline {
namespace {

// The phases of a row, in the low bits of a state. A writer that was killed leaves `kBeingWritten`.
constexpr std::uint64_t kBeingWritten = 1;
constexpr std::uint64_t kThere = 2;
constexpr int kPhaseBits = 2;

std::uint64_t state_of(std::uint64_t generation, std::uint64_t phase) {
  return generation << kPhaseBits | phase;
}

/// A place as it travels.
std::string text_of(std::uint64_t place) {
  return {reinterpret_cast<const char*>(&place), sizeof(place)};
}
std::uint64_t place_in(const std::string& text) {
  std::uint64_t place = 0;
  std::memcpy(&place, text.data(), sizeof(place));
  return place;
}

}  // namespace

ActivationCache::ActivationCache(Context& context, const CacheOptions& options)
    : options_(options), members_{context.rank()} {
  std::string problem = why_useless();
  if (problem.empty()) {
    try {
      share_memory(context);
    } catch (const TransportError& error) {
      problem = error.what();
    } catch (const std::bad_alloc&) {
      problem = fmt::format(
          "expected memory for {} bytes of rows and the numbers of {} samples, found too little",
          options.memory_bytes, options.samples);
    }
  }
  optimizers::check_ranks_agree(
      context, "activation cache",
      {.lines = {fmt::format("{} samples, {} bytes of memory, {} of a file", options.samples,
                             options.memory_bytes, options.disk_bytes)},
       .problem = problem});
  // The places of blocks, by which the others of the host find them.
  const std::shared_ptr<shm::HostMemory>& memory = context.core().shared_memory();
  const std::size_t index_bytes =
      round_up(sizeof(Entry) * static_cast<std::size_t>(options.samples), kCacheLine);
  const std::size_t bytes = index_bytes + member_bytes_;
  const std::uint64_t own_place =
      members_.size() > 1 ? memory->place_of(block_.get(), bytes).value() : 0;
  const auto places = ops::allgather_parts(context, "activation cache", text_of(own_place));
  for (const int member : members_) {
    std::byte* const block =
        member == context.rank()
            ? block_.get()
            : memory->at(member, place_in(places[static_cast<std::size_t>(member)]), bytes);
    rows_.push_back(block + index_bytes);
  }
  entries_ = reinterpret_cast<Entry*>(rows_.front() - index_bytes);
  optimizers::check_ranks_agree(context, "activation cache",
                                {.lines = {}, .problem = open_file(context)});
  if (file_ && own_ == 0) {
    file_->remove_name();
  }
}

std::string ActivationCache::why_useless() const {
  if (options_.samples < 1 || options_.memory_bytes < 0 || options_.disk_bytes < 0) {
    return fmt::format(
        "expected at least 1 sample, and 0 bytes of memory and of a file or more, found {}, {} and "
        "{}",
        options_.samples, options_.memory_bytes, options_.disk_bytes);
  }
  if (options_.disk_bytes > 0 && options_.folder.empty()) {
    return "expected a folder for the file, found none";
  }
  return {};
}

// Every member has room for the index, of which the first one's is used.
void ActivationCache::share_memory(Context& context) {
  const std::shared_ptr<shm::HostMemory>& memory = context.core().shared_memory();
  const MachineLayout& hosts = context.hosts();
  if (memory) {
    members_.clear();
    for (const int rank : hosts.ranks_of(hosts.machine_of(context.rank()))) {
      if (rank == context.rank() || memory->reaches(rank)) {
        members_.push_back(rank);
      }
    }
  }
  own_ = static_cast<std::size_t>(std::ranges::find(members_, context.rank()) - members_.begin());
  member_bytes_ =
      static_cast<std::size_t>(options_.memory_bytes) / members_.size() / kCacheLine * kCacheLine;
  const std::size_t index_bytes =
      round_up(sizeof(Entry) * static_cast<std::size_t>(options_.samples), kCacheLine);
  block_ = members_.size() > 1
               ? shm::HostMemory::allocate_zeros(memory, index_bytes + member_bytes_)
               : std::shared_ptr<std::byte>(new std::byte[index_bytes + member_bytes_](),
                                            std::default_delete<std::byte[]>());
}

std::string ActivationCache::open_file(Context& context) {
  std::string problem;
  const auto attempt = [&](auto&& open) {
    try {
      file_ = open();
    } catch (const InvalidArgument& error) {
      problem = error.what();
    }
  };
  const bool has_file = options_.disk_bytes > 0;
  if (has_file && own_ == 0) {
    attempt([&] { return SpillFile::make(options_.folder); });
  }
  const auto names =
      ops::allgather_parts(context, "activation cache", file_ ? file_->name() : std::string());
  const std::string& name = names[static_cast<std::size_t>(members_.front())];
  if (has_file && own_ != 0 && !name.empty()) {
    attempt([&] { return SpillFile::open(name); });
  }
  return problem;
}

void ActivationCache::begin_generation(std::size_t row_bytes) {
  ++generation_;
  row_bytes_ = row_bytes;
}

// Samples go round the members; behind what memory holds they lie in the file.
ActivationCache::Place ActivationCache::place_of(std::int64_t sample) const noexcept {
  if (row_bytes_ == 0) {
    return {};
  }
  const std::size_t stride = round_up(row_bytes_, kCacheLine);
  const std::size_t member = static_cast<std::size_t>(sample) % members_.size();
  const std::size_t turn = static_cast<std::size_t>(sample) / members_.size();
  const std::size_t in_memory = member_bytes_ / stride;
  if (turn < in_memory) {
    return {.memory = rows_[member] + turn * stride};
  }
  const std::uint64_t offset = ((turn - in_memory) * members_.size() + member) * stride;
  if (file_ && offset + stride <= static_cast<std::uint64_t>(options_.disk_bytes)) {
    return {.offset = offset};
  }
  return {};
}

bool ActivationCache::find(std::int64_t sample, std::uint64_t stamp, std::span<std::byte> row) {
  return read(sample, state_of(generation_, kThere), stamp, row);
}

bool ActivationCache::find_older(std::int64_t sample, std::uint64_t stamp,
                                 std::span<std::byte> row) {
  const std::uint64_t state =
      std::atomic_ref(entries_[sample].state).load(std::memory_order_acquire);
  const bool is_older = state >> kPhaseBits < generation_ && (state & kThere) != 0;
  return is_older && read(sample, state, stamp, row);
}

bool ActivationCache::read(std::int64_t sample, std::uint64_t expected, std::uint64_t stamp,
                           std::span<std::byte> row) {
  const Place place = place_of(sample);
  Entry& entry = entries_[sample];
  const std::atomic_ref<std::uint64_t> state(entry.state);
  if (!place.exists() || state.load(std::memory_order_acquire) != expected ||
      entry.stamp != stamp) {
    return false;
  }
  const std::uint64_t checksum = entry.checksum;
  if (place.memory != nullptr) {
    std::memcpy(row.data(), place.memory, row.size());
  } else if (!file_->read(*place.offset, row)) {
    return false;
  }
  std::atomic_thread_fence(std::memory_order_acquire);
  return state.load(std::memory_order_relaxed) == expected &&
         optimizers::fingerprint(row.data(), row.size()) == checksum;
}

void ActivationCache::store(std::int64_t sample, std::uint64_t stamp,
                            std::span<const std::byte> row) {
  const Place place = place_of(sample);
  Entry& entry = entries_[sample];
  const std::atomic_ref<std::uint64_t> state(entry.state);
  std::uint64_t found = state.load(std::memory_order_relaxed);
  if (!place.exists() || found >> kPhaseBits == generation_ ||
      !state.compare_exchange_strong(found, state_of(generation_, kBeingWritten),
                                     std::memory_order_acquire)) {
    return;
  }
  std::atomic_thread_fence(std::memory_order_release);  // whoever sees the row change sees why
  if (place.memory != nullptr) {
    std::memcpy(place.memory, row.data(), row.size());
  } else {
    file_->write(*place.offset, row);
  }
  entry.stamp = stamp;
  entry.checksum = optimizers::fingerprint(row.data(), row.size());
  state.store(state_of(generation_, kThere), std::memory_order_release);
}

}  // namespace bluefog::pipeline
