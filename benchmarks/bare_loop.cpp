#include "benchmarks/bare_loop.hpp"

#include <sched.h>

#include <algorithm>
#include <thread>

#include "benchmarks/rounds.hpp"
#include "bluefog_cpp/base/copy.hpp"
#include "ops/sums/combine.hpp"

namespace bluefog::benchmarks {
namespace {

/// Spins; gives its core away now and then, in case both threads share one.
template <typename IsDone>
void spin_until(const IsDone& is_done) {
  for (int tries = 1; !is_done(); ++tries) {
    if (tries % 4096 == 0) {
      std::this_thread::yield();
    }
  }
}

/// A launcher binds a rank to a core of its own; a second thread there would only take turns.
void leave_core(int core) {
  cpu_set_t others;
  CPU_ZERO(&others);
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (i != core) {
      CPU_SET(static_cast<std::size_t>(i), &others);
    }
  }
  sched_setaffinity(0, sizeof(others), &others);  // refused where there is but one core
}

std::byte* bytes_of(float* place) { return reinterpret_cast<std::byte*>(place); }

}  // namespace

BareLoop::BareLoop(std::size_t bytes, std::size_t chunk_bytes)
    : chunk_floats_(chunk_bytes / sizeof(float)) {
  for (Side& side : sides_) {
    side.x.assign(bytes / sizeof(float), 1.0F);
    side.slots.assign(kSlots * chunk_floats_, 0.0F);
  }
}

double BareLoop::time_us() {
  ++round_;
  std::jthread other([this, core = sched_getcpu()] {
    leave_core(core);
    take_part(1, round_);
  });
  std::ranges::fill(sides_[0].x, static_cast<float>(round_ % 8));
  spin_until([&] { return sides_[1].rounds.load(std::memory_order_acquire) == 2 * round_ - 1; });
  return benchmarks::time_us([&] {
    take_part(0, round_);
    spin_until([&] { return sides_[1].rounds.load(std::memory_order_acquire) == 2 * round_; });
  });
}

void BareLoop::take_part(std::size_t own_side, std::uint64_t round) {
  Side& own = sides_[own_side];
  Side& other = sides_[1 - own_side];
  if (own_side == 1) {
    std::ranges::fill(own.x, static_cast<float>(round % 8 + 1));
  }
  // An odd count means ready, an even one done.
  own.rounds.store(2 * round - 1, std::memory_order_release);
  spin_until([&] { return other.rounds.load(std::memory_order_acquire) >= 2 * round - 1; });
  exchange(own, other);
  own.rounds.store(2 * round, std::memory_order_release);
}

void BareLoop::exchange(Side& own, Side& other) {
  const std::size_t chunks = (own.x.size() + chunk_floats_ - 1) / chunk_floats_;
  const std::uint64_t before = own.consumed.load(std::memory_order_relaxed);
  const auto chunk_of = [&](Side& side, std::size_t index) {
    return side.x.data() + index * chunk_floats_;
  };
  const auto bytes_in = [&](std::size_t index) {
    return sizeof(float) * std::min(chunk_floats_, own.x.size() - index * chunk_floats_);
  };
  std::size_t sent = 0;
  std::size_t added = 0;
  while (added < chunks) {
    if (sent < chunks &&
        before + sent < other.consumed.load(std::memory_order_acquire) + kSlots) {
      float* const slot = own.slots.data() + (sent % kSlots) * chunk_floats_;
      copy_bytes(bytes_of(slot), bytes_of(chunk_of(own, sent)), bytes_in(sent));
      own.published.store(before + ++sent, std::memory_order_release);
    }
    // Chunks that have been sent may be overwritten, others not.
    if (added < sent && other.published.load(std::memory_order_acquire) > before + added) {
      float* const slot = other.slots.data() + (added % kSlots) * chunk_floats_;
      std::byte* const x = bytes_of(chunk_of(own, added));
      const std::array<ops::Operand, 2> operands{
          {{.data = x, .weight = 0.5}, {.data = bytes_of(slot), .weight = 0.5}}};
      ops::weighted_sum(Dtype::Float32, x, operands, bytes_in(added));
      own.consumed.store(before + ++added, std::memory_order_release);
    }
  }
}

}  // namespace bluefog::benchmarks
