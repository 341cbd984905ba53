#include "bluefog_cpp/context/resync.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "bluefog_cpp/transport/message.hpp"

namespace bluefog {
namespace {

using Words = std::vector<std::uint64_t>;

constexpr std::size_t kKept = CallLedger::kKeptCalls;
constexpr std::size_t kChangeWords = 4;
/// The places of a rank's words; the counts of calls with each partner come last.
enum Place : std::size_t {
  kNextCall,
  kChanges,
  kFailed = kChanges + kKept * kChangeWords,
  kPairs = kFailed + kKept
};

Words words_of(const Engine::CallCounts& counts) {
  Words words{counts.next_call};
  for (const CallLedger::Change& change : counts.changes) {
    words.insert(words.end(), {change.call, static_cast<std::uint64_t>(change.kind),
                               static_cast<std::uint64_t>(change.dtype),
                               static_cast<std::uint64_t>(change.count)});
  }
  words.insert(words.end(), counts.failed_without_change.begin(),
               counts.failed_without_change.end());
  words.insert(words.end(), counts.pair_calls.begin(), counts.pair_calls.end());
  return words;
}

std::vector<Words> gather(Bootstrap& bootstrap, const Words& own, Deadline deadline) {
  std::vector<Words> all;
  for (const auto& blob : bootstrap.allgather(std::as_bytes(std::span(own)), deadline)) {
    Words& words = all.emplace_back(own.size());
    std::memcpy(words.data(), blob.data(),
                std::min(blob.size(), words.size() * sizeof(std::uint64_t)));
  }
  return all;
}

/// Ends a wait of `bootstrap` where a rank is gone, or the user interrupts it.
class WatchForTheGone {
 public:
  WatchForTheGone(Bootstrap& bootstrap, Engine& engine) : bootstrap_(bootstrap), engine_(engine) {
    bootstrap.set_look([this] { look(); });
  }
  ~WatchForTheGone() { bootstrap_.set_look({}); }
  WatchForTheGone(const WatchForTheGone&) = delete;
  WatchForTheGone& operator=(const WatchForTheGone&) = delete;

 private:
  using Clock = std::chrono::steady_clock;

  void look() {
    constexpr std::chrono::milliseconds kPeriod(50);
    // A rank may leave as soon as it has all words; those for this one are then under way.
    constexpr std::chrono::seconds kUnderWay(2);
    const Clock::time_point now = Clock::now();
    if (now - last_look_ < kPeriod) {
      return;
    }
    last_look_ = now;
    engine_.check_interrupt();
    for (int peer = 0; peer < bootstrap_.size(); ++peer) {
      if (peer == bootstrap_.rank()) {
        continue;
      }
      if (const auto cause = engine_.cause_of_death(peer)) {
        seen_gone_ = seen_gone_ == Clock::time_point() ? now : seen_gone_;
        if (now - seen_gone_ >= kUnderWay) {
          throw PeerFailure(peer,
                            fmt::format("rank {}, resync: expected all {} ranks to call it, but "
                                        "rank {} does not come: {}",
                                        bootstrap_.rank(), bootstrap_.size(), peer, *cause));
        }
        return;
      }
    }
  }

  Bootstrap& bootstrap_;
  Engine& engine_;
  Clock::time_point last_look_;
  Clock::time_point seen_gone_;
};

std::string describe_change(std::span<const std::uint64_t> change) {
  const auto envelope =
      Envelope::make(static_cast<OpKind>(change[1]), static_cast<Dtype>(change[2]),
                     static_cast<std::int64_t>(change[3]));
  return fmt::format("{}, {}", call_text(change[0]), envelope.describe());
}

/// Whether a rank has not made that call, or has failed in it before it changed anything.
bool lacks(const Words& words, std::uint64_t call) {
  const auto failed = std::span(words).subspan(kFailed, kKept);
  return call >= words[kNextCall] || std::ranges::find(failed, call) != failed.end();
}

/// Values of the ranks differ for good where some have taken part in a call in place and others
/// have not: @throws StateError, on all of them.
void check_changes(int own, const std::vector<Words>& all) {
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    for (std::size_t i = 0; i < kKept; ++i) {
      const auto change = std::span(all[rank]).subspan(kChanges + i * kChangeWords, kChangeWords);
      const auto without = std::ranges::find_if(
          all, [&](const Words& words) { return change[0] != 0 && lacks(words, change[0]); });
      if (without != all.end()) {
        throw StateError(fmt::format(
            "rank {}, resync: expected that no call which only some ranks have made has changed a "
            "buffer in place, found that rank {} has changed its own, in whole or in part, in {}, "
            "which rank {} has not made to its end; make a new context on all ranks (in Python "
            "shutdown and init), and give them the same values",
            own, rank, describe_change(change), without - all.begin()));
      }
    }
  }
}

}  // namespace

void resync(Bootstrap& bootstrap, Engine& engine, Deadline deadline) {
  const Words own_words = words_of(engine.begin_resync());
  const WatchForTheGone watch(bootstrap, engine);
  const std::vector<Words> all = gather(bootstrap, own_words, deadline);
  check_changes(bootstrap.rank(), all);
  const auto own = static_cast<std::size_t>(bootstrap.rank());
  std::uint64_t next_call = 0;
  std::vector<std::uint64_t> pair_calls(all.size());
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    next_call = std::max(next_call, all[rank][kNextCall]);
    pair_calls[rank] = std::max(all[own][kPairs + rank], all[rank][kPairs + own]);
  }
  // Ranks have given up their next calls: none is made under that number.
  engine.end_resync(next_call + 1, std::move(pair_calls));
}

}  // namespace bluefog
