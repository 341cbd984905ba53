#include "bluefog_cpp/context/resync.hpp"

#include <fmt/format.h>

#include <algorithm>
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

/// The places of a rank's words; the counts of calls with each partner come behind them.
enum Place : std::size_t { kNextCall, kChangedCall, kKind, kDtype, kCount, kPairs };

Words words_of(const Engine::CallCounts& counts) {
  const CallLedger::Change& change = counts.last_change;
  Words words{counts.next_call, change.call, static_cast<std::uint64_t>(change.kind),
              static_cast<std::uint64_t>(change.dtype), static_cast<std::uint64_t>(change.count)};
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

std::string describe_change(const Words& words) {
  const auto envelope =
      Envelope::make(static_cast<OpKind>(words[kKind]), static_cast<Dtype>(words[kDtype]),
                     static_cast<std::int64_t>(words[kCount]));
  return fmt::format("{}, {}", call_text(words[kChangedCall]), envelope.describe());
}

/// Values of the ranks differ for good where some have taken part in a call in place and others have
/// not: @throws StateError, on all of them.
void check_changes(int own, const std::vector<Words>& all) {
  const auto behind =
      std::ranges::min_element(all, {}, [](const Words& words) { return words[kNextCall]; });
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank][kChangedCall] >= (*behind)[kNextCall]) {
      throw StateError(fmt::format(
          "rank {}, resync: expected that no call which only some ranks have made has changed a "
          "buffer in place, found that rank {} has changed its own in {}, which rank {} has not "
          "made; make a new context on all ranks (in Python shutdown and init), and give them the "
          "same values",
          own, rank, describe_change(all[rank]), behind - all.begin()));
    }
  }
}

}  // namespace

void resync(Bootstrap& bootstrap, Engine& engine, Deadline deadline) {
  const std::vector<Words> all = gather(bootstrap, words_of(engine.begin_resync()), deadline);
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
