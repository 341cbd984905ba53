#include "bluefog_cpp/bootstrap/store/store_exchange.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <string_view>
#include <thread>
#include <utility>

#include "bluefog_cpp/bootstrap/store/words.hpp"
#include "bluefog_cpp/error.hpp"
#include "bluefog_cpp/store/ended_ranks.hpp"

namespace bluefog {

namespace {

using Clock = Deadline::Clock;
using std::chrono::milliseconds;

constexpr int kRoot = 0;
/// How long one call of the store waits: its caller looks around in between.
constexpr milliseconds kSlice(100);
/// How long a refusal waits until the others have it.
constexpr milliseconds kForReceipts(2000);
/// A store that does not wait as it should is asked this often.
constexpr milliseconds kPause(5);
constexpr std::size_t kHeadBytes = 64;

std::string in_words(const std::vector<int>& missing) {
  return missing.empty() ? "all have come, but not all of their words" : words_of_missing(missing);
}

}  // namespace

struct StoreExchange::Wait {
  BootstrapCall call;
  Deadline deadline;
  const std::atomic<bool>& is_over;
  Clock::time_point begin = Clock::now();
  Clock::time_point next_warning = {};
  std::string warned_of = {};
};

std::string launch_rank_key(const std::string& prefix, int rank) {
  return fmt::format("{}/launch_rank/{}", prefix, rank);
}

void StoreExchange::begin_membership() {
  is_member_ = true;
  if (place_.launch_rank >= 0) {
    place_.store->set(launch_rank_key(place_.prefix, place_.rank),
                      bytes_of(std::to_string(place_.launch_rank)), Deadline::never());
  }
}

std::string StoreExchange::name_of(BootstrapCall call) const {
  return fmt::format("bootstrap {} on rank {}, over {}", to_string(call), place_.rank,
                     place_.store->description());
}

std::string StoreExchange::key(const std::string& of) const {
  return fmt::format("{}/{}/{}", place_.prefix, generation_, of);
}

std::vector<StoreRecord> StoreExchange::run(const StoreRecord& own, const Judge& judge,
                                            Deadline deadline, const std::atomic<bool>& is_over) {
  Wait wait{.call = own.call, .deadline = deadline, .is_over = is_over};
  wait.next_warning = wait.begin + place_.stall_warning;
  std::vector<StoreRecord> records;
  if (place_.rank == kRoot) {
    records = gather(own, judge, wait);
    remove_old(deadline);
  } else {
    const auto bytes = encode(std::span(&own, 1));
    put_pieces(*place_.store, key_of_rank(place_.rank), bytes, deadline);
    note_put(key_of_rank(place_.rank), bytes.size());
    records = receive(wait);
  }
  ++generation_;
  return records;
}

std::vector<StoreRecord> StoreExchange::gather(const StoreRecord& own, const Judge& judge,
                                               Wait& wait) {
  // Others tell by it whether rank 0 has come.
  put_pieces(*place_.store, key_of_rank(kRoot), {}, wait.deadline);
  note_put(key_of_rank(kRoot), 0);
  std::vector<StoreRecord> records{own};
  for (int rank = 1; rank < place_.size; ++rank) {
    const auto bytes = await(key_of_rank(rank), Bootstrap::kMaxBlobBytes + kHeadBytes, wait);
    records.push_back(decode(bytes, 1).front());
    if (const std::string verdict = judge ? judge(rank, records.back()) : std::string();
        !verdict.empty()) {
      hand_out(verdict, {}, wait);
      // The store may end with this process, which has no more to do.
      await_receipts(Deadline::after(kForReceipts), wait.is_over);
      throw UnsupportedError(fmt::format("{}: {}", name_of(wait.call), verdict));
    }
  }
  hand_out({}, records, wait);
  return records;
}

void StoreExchange::hand_out(const std::string& verdict, const std::vector<StoreRecord>& records,
                             Wait& wait) {
  const auto text = std::as_bytes(std::span(verdict));
  std::vector<StoreRecord> all{{wait.call, {text.begin(), text.end()}}};
  all.insert(all.end(), records.begin(), records.end());
  const auto bytes = encode(all);
  put_pieces(*place_.store, key("all"), bytes, wait.deadline);
  note_put(key("all"), bytes.size());
  ++handed_out_;
}

void StoreExchange::await_receipts(Deadline deadline, const std::atomic<bool>& is_over) {
  const std::int64_t expected = handed_out_ * (place_.size - 1);
  while (!is_over && !deadline.expired() &&
         place_.store->add(receipts_key(), 0, deadline) < expected) {
    std::this_thread::sleep_for(kPause);
  }
}

std::vector<StoreRecord> StoreExchange::receive(Wait& wait) {
  const std::size_t most =
      static_cast<std::size_t>(place_.size + 1) * (Bootstrap::kMaxBlobBytes + kHeadBytes);
  const auto bytes = await(key("all"), most, wait);
  give_receipt(wait.deadline);
  const std::span<const std::byte> view(bytes);
  std::uint64_t verdict_bytes = 0;
  if (view.size() >= 2 * sizeof verdict_bytes) {
    std::memcpy(&verdict_bytes, view.data() + sizeof verdict_bytes, sizeof verdict_bytes);
  }
  if (verdict_bytes > 0) {
    const auto verdict = decode(view, 1).front().blob;
    throw UnsupportedError(fmt::format(
        "{}: {}", name_of(wait.call),
        std::string_view(reinterpret_cast<const char*>(verdict.data()), verdict.size())));
  }
  auto records = decode(view, static_cast<std::size_t>(place_.size) + 1);
  records.erase(records.begin());
  return records;
}

Store::Bytes StoreExchange::await(const std::string& key, std::size_t most, Wait& wait) {
  const auto fetch = [&](const std::string& part) -> std::optional<Store::Bytes> {
    while (true) {
      const auto begin = Clock::now();
      const auto left =
          wait.deadline.is_set() ? wait.deadline.when() - begin : Clock::duration(kSlice);
      const auto slice = std::clamp<Clock::duration>(left, Clock::duration(1), kSlice);
      if (auto value = place_.store->get(part, Deadline::after(slice))) {
        return value;
      }
      if (wait.is_over || wait.deadline.expired()) {
        return std::nullopt;
      }
      check_the_missing(wait);
      if (Clock::now() - begin < slice / 2) {
        std::this_thread::sleep_for(kPause);
      }
      warn_if_due(wait);
    }
  };
  if (auto value = take_pieces(fetch, key, most)) {
    return std::move(*value);
  }
  throw TimeoutError(fmt::format("{}: expected all {} ranks within {:.3g} s ({}), {}",
                                 name_of(wait.call), place_.size, wait.deadline.timeout().count(),
                                 place_.timeout_name,
                                 wait.is_over ? "nobody waits any more" : in_words(missing())));
}

std::vector<int> StoreExchange::missing() {
  std::vector<int> ranks;
  for (int rank = 0; rank < place_.size; ++rank) {
    if (rank != place_.rank && !place_.store->get(key_of_rank(rank), at_once())) {
      ranks.push_back(rank);
    }
  }
  return ranks;
}

void StoreExchange::check_the_missing(const Wait& wait) {
  if (place_.ended_key.empty()) {
    return;
  }
  const auto text = place_.store->get(place_.ended_key, at_once());
  if (!text) {
    return;
  }
  for (const auto& [rank, cause] : store::ended_ranks_from(words_of(*text))) {
    // Whoever ended after it had come has done what this collective needs of it.
    const bool is_missing = rank >= 0 && rank < place_.size && rank != place_.rank &&
                            !place_.store->get(key_of_rank(rank), at_once());
    if (is_missing) {
      throw PeerFailure(rank,
                        fmt::format("{}: expected all {} ranks, found that one has ended before it "
                                    "came: {}",
                                    name_of(wait.call), place_.size, cause));
    }
  }
}

void StoreExchange::warn_if_due(Wait& wait) {
  const auto now = Clock::now();
  if (place_.stall_warning.count() <= 0 || now < wait.next_warning) {
    return;
  }
  wait.next_warning += place_.stall_warning;
  if (std::string words = in_words(missing()); words != wait.warned_of) {
    const std::chrono::duration<double> waited = now - wait.begin;
    place_.log.warning(fmt::format("{} has been waiting for {:.3g} s for all {} ranks: {}",
                                   name_of(wait.call), waited.count(), place_.size, words));
    wait.warned_of = std::move(words);
  }
}

void StoreExchange::note_put(const std::string& key, std::size_t bytes) {
  puts_.push_back({generation_, key, bytes});
}

// The last that a rank does in a collective: rank 0 may end then, with the store. What this rank came
// for it has.
void StoreExchange::give_receipt(Deadline deadline) {
  try {
    remove_old(deadline);
    place_.store->add(receipts_key(), 1, deadline);
  } catch (const TransportError&) {
    // The next collective finds that the store is gone.
  }
}

// Whoever ends this collective knows that all ranks have begun it, and so have ended the one
// before.
void StoreExchange::remove_old(Deadline deadline) {
  while (!puts_.empty() && puts_.front().generation + 2 <= generation_) {
    remove_pieces(*place_.store, puts_.front().key, puts_.front().bytes, deadline);
    puts_.pop_front();
  }
}

}  // namespace bluefog
