#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "bluefog_cpp/context.hpp"

// Parts that the threads of the soak program share.
namespace bluefog::soak {

/// The kinds of calls that are counted.
enum class Kind : std::uint8_t {
  Static,
  Dynamic,
  Hierarchical,
  Allreduce,
  PairGossip,
  Put,
  Accumulate,
  Get,
  Update,
  Lock,
  Epoch,
};
inline constexpr std::array<std::string_view, 11> kKindNames{
    "static",     "dynamic", "hierarchical", "allreduce", "pair_gossip", "put",
    "accumulate", "get",     "update",       "lock",      "epochs"};

/// The state that all threads of a rank share.
struct Run {
  std::uint64_t seed = 1;
  std::atomic<bool> should_stop{false};
  std::array<std::atomic<std::int64_t>, kKindNames.size()> done{};

  void count(Kind kind) { done[static_cast<std::size_t>(kind)].fetch_add(1); }
};

/// Random numbers: `common` gives the same ones on all ranks, `own` does not.
struct Dice {
  std::mt19937_64 common;
  std::mt19937_64 own;

  Dice(std::uint64_t seed, std::uint64_t thread, int rank)
      : common(seed * 1000 + thread), own((seed * 1000 + thread) * 1000 + rank + 1) {}

  /// 0 … bound − 1.
  static int roll(std::mt19937_64& from, int bound) {
    return static_cast<int>(from() % static_cast<std::uint64_t>(bound));
  }
};

/// Thrown for a result that is not the expected one.
class Wrong : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Neighbour averages of all kinds, checked element by element, until all ranks are told to stop.
void average(Context& context, Run& run, Dice dice);

/// Gossip of random pairs.
void gossip(Context& context, Run& run, Dice dice);

/// Windows that two threads use at the same time; accumulated values must be conserved exactly.
void use_windows(Context& context, Run& run, Dice dice);

/// Collective: whether any rank has been told to stop.
[[nodiscard]] bool all_stop(Context& context, const Run& run);

/// The resources of a process.
struct Resources {
  double rss_mib = 0.0;
  int descriptors = 0;
  int threads = 0;
  /// Entries of /dev/shm, whoever made them.
  int shm_entries = 0;

  static Resources now();
};

}  // namespace bluefog::soak
