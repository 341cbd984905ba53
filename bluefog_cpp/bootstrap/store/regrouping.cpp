#include "bluefog_cpp/bootstrap/store/regrouping.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <iterator>
#include <string_view>
#include <utility>

#include "bluefog_cpp/base/files/take_line.hpp"
#include "bluefog_cpp/base/silence.hpp"
#include "bluefog_cpp/base/version.hpp"
#include "bluefog_cpp/bootstrap/store/words.hpp"
#include "bluefog_cpp/error.hpp"
#include "bluefog_cpp/store/ended_ranks.hpp"

namespace bluefog {
namespace {

using Lost = Bootstrap::Lost;
using Clock = Deadline::Clock;

/// A wait for one key, between looks at who has ended.
constexpr std::chrono::milliseconds kLook(5);
/// A rank that was to write something has ended: for so long it may still be under way.
constexpr std::chrono::seconds kUnderWay(2);

std::int64_t take_number(std::string_view& line) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), number);
  if (error != std::errc()) {
    throw TransportError(fmt::format("expected a number in a record of ranks, found '{}'", line));
  }
  line.remove_prefix(static_cast<std::size_t>(end - line.data()));
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  return number;
}

/// A line for each: its number, and why.
std::string text_of(const std::vector<Lost>& lost) {
  std::string text;
  for (const auto& [rank, cause] : lost) {
    text += fmt::format("{} {}\n", rank, cause);
  }
  return text;
}

std::vector<Lost> lost_from(std::string_view text) {
  std::vector<Lost> lost;
  while (!text.empty()) {
    std::string line = take_line(text);
    std::string_view rest = line;
    const auto rank = static_cast<int>(take_number(rest));
    lost.push_back({.rank = rank, .cause = std::string(rest)});
  }
  return lost;
}

std::string text_of(const Regrouping::Verdict& verdict) {
  return fmt::format("{} {}\n{}\n{}\n{}", verdict.group, verdict.time_us,
                     fmt::join(verdict.ranks, " "), fmt::join(verdict.joined, " "),
                     text_of(verdict.lost));
}

Regrouping::Verdict verdict_from(std::string_view text) {
  Regrouping::Verdict verdict;
  const std::string group = take_line(text);
  std::string_view number = group;
  verdict.group = take_number(number);
  verdict.time_us = take_number(number);
  const std::string ranks = take_line(text);
  for (std::string_view rest = ranks; !rest.empty();) {
    verdict.ranks.push_back(static_cast<int>(take_number(rest)));
  }
  const std::string joined = take_line(text);
  for (std::string_view rest = joined; !rest.empty();) {
    verdict.joined.push_back(take_number(rest));
  }
  verdict.lost = lost_from(text);
  return verdict;
}

const Lost* find(const std::vector<Lost>& lost, int rank) {
  const auto found = std::ranges::find(lost, rank, &Lost::rank);
  return found == lost.end() ? nullptr : &*found;
}

/// Whether `is` holds for no rank below `rank`.
template <typename Is>
bool is_for_none_below(int rank, Is is) {
  for (int lower = 0; lower < rank; ++lower) {
    if (is(lower)) {
      return false;
    }
  }
  return true;
}

}  // namespace

std::string Regrouping::Seat::text() const {
  return fmt::format("{} {} {} {} {}", group, attempt, rank, size, meeting);
}

Regrouping::Seat Regrouping::Seat::from(std::string_view text) {
  Seat seat;
  seat.group = take_number(text);
  seat.attempt = take_number(text);
  seat.rank = static_cast<int>(take_number(text));
  seat.size = static_cast<int>(take_number(text));
  seat.meeting = text;
  return seat;
}

struct Regrouping::Arrivals {
  std::vector<bool> have_come{};
  bool do_all_admit = true;
  std::vector<Lost> said_gone{};

  [[nodiscard]] bool has(int rank) const { return have_come[static_cast<std::size_t>(rank)]; }
};

std::string Regrouping::key(std::int64_t attempt, const std::string& of) const {
  return fmt::format("{}/r{}/{}", place_.prefix, attempt, of);
}

bool Regrouping::has_begun(std::int64_t attempt) {
  return place_.store->get(key(attempt, "begun"), at_once()).has_value();
}

void Regrouping::begin(std::int64_t attempt) {
  place_.store->set(key(attempt, "begun"), bytes_of("1"), Deadline::never());
}

bool Regrouping::is_given_up() { return has_begun(attempt_ + 1); }

std::vector<Lost> Regrouping::gone_now(const Bootstrap::WhyGone& why_gone) const {
  std::vector<Lost> gone;
  for (int rank = 0; rank < place_.size; ++rank) {
    if (rank != place_.rank) {
      if (auto cause = why_gone(rank)) {
        std::ranges::replace(*cause, '\n', ' ');  // a record has a line for each
        gone.push_back({.rank = rank, .cause = std::move(*cause)});
      }
    }
  }
  return gone;
}

Regrouping::Verdict Regrouping::meet(const Coming& coming, const std::atomic<bool>& is_over) {
  while (true) {
    ++attempt_;
    while (has_begun(attempt_ + 1)) {
      ++attempt_;
    }
    if (auto verdict = attempt(coming, is_over)) {
      check_membership(*verdict);
      seat(*verdict);
      return std::move(*verdict);
    }
  }
}

void Regrouping::announce(bool admits, const std::vector<Lost>& gone) {
  place_.store->set(key(attempt_, std::to_string(place_.rank)),
                    bytes_of(fmt::format("{:d}\n{}", admits, text_of(gone))), Deadline::never());
}

// Each rank does so, lest an applicant waits for one that has ended.
void Regrouping::seat(const Verdict& verdict) {
  for (std::size_t i = 0; i < verdict.joined.size(); ++i) {
    const Seat seat{.group = verdict.group,
                    .attempt = attempt_,
                    .rank = static_cast<int>(verdict.ranks.size() + i),
                    .size = verdict.size(),
                    .meeting = place_.prefix};
    applicants_.tell(verdict.joined[i], seat.text());
  }
}

void Regrouping::look_for_arrivals(Arrivals& arrivals) {
  for (int rank = 0; rank < place_.size; ++rank) {
    if (arrivals.has(rank)) {
      continue;
    }
    if (const auto announced = place_.store->get(key(attempt_, std::to_string(rank)), at_once())) {
      arrivals.have_come[static_cast<std::size_t>(rank)] = true;
      const std::string words = words_of(*announced);
      std::string_view rest = words;
      arrivals.do_all_admit = take_line(rest) == "1" && arrivals.do_all_admit;
      std::ranges::move(lost_from(rest), std::back_inserter(arrivals.said_gone));
    }
  }
}

std::optional<Regrouping::Verdict> Regrouping::attempt(const Coming& coming,
                                                       const std::atomic<bool>& is_over) {
  begin(attempt_);
  std::vector<Lost> gone = gone_now(coming.why_gone);
  announce(coming.admits, gone);
  Arrivals arrivals{.have_come = std::vector<bool>(static_cast<std::size_t>(place_.size), false)};
  while (true) {
    if (const auto record = place_.store->get(key(attempt_, "record"), Deadline::after(kLook))) {
      return verdict_from(words_of(*record));
    }
    if (is_over) {
      throw TimeoutError("nobody waits for the ranks that are left any more");
    }
    if (is_given_up()) {
      return std::nullopt;
    }
    if (std::vector<Lost> now = gone_now(coming.why_gone); now.size() != gone.size()) {
      gone = std::move(now);
      announce(coming.admits, gone);  // others may not see that end
    }
    const bool is_late = coming.deadline.expired();
    const bool is_one_late = coming.late_deadline.expired();
    if (is_late || is_one_late) {
      look_for_arrivals(arrivals);
    }
    const auto is_awaited = [&](int rank) {
      return !is_late && !(is_one_late && rank == coming.late);
    };
    const bool is_lowest = is_for_none_below(place_.rank, [&](int rank) {
      return find(gone, rank) == nullptr && (is_awaited(rank) || arrivals.has(rank));
    });
    if (!is_lowest) {
      continue;
    }
    look_for_arrivals(arrivals);
    const bool is_nobody_awaited = is_for_none_below(place_.size, [&](int rank) {
      return !arrivals.has(rank) && is_awaited(rank) && find(gone, rank) == nullptr &&
             find(arrivals.said_gone, rank) == nullptr;
    });
    if (is_nobody_awaited) {
      return conclude(arrivals, gone);
    }
  }
}

std::optional<Regrouping::Verdict> Regrouping::conclude(const Arrivals& arrivals,
                                                        const std::vector<Lost>& gone) {
  Verdict verdict;
  std::vector<int> late;
  for (int rank = 0; rank < place_.size; ++rank) {
    const Lost* const own = find(gone, rank);
    const Lost* const said = find(arrivals.said_gone, rank);
    if (arrivals.has(rank) && own == nullptr) {
      verdict.ranks.push_back(rank);
    } else if (own != nullptr || said != nullptr) {
      verdict.lost.push_back(own != nullptr ? *own : *said);
      if (verdict.lost.back().cause.starts_with(kSilence)) {
        late.push_back(rank);
      }
    } else {
      late.push_back(rank);
      verdict.lost.push_back(
          {.rank = rank, .cause = "that rank has not come to the others in time"});
    }
  }
  const Deadline never;
  if (place_.store->add(key(attempt_, "writers"), 1, never) == 1) {
    std::ranges::for_each(late, [this](int rank) { tell_launcher_of(rank); });
    verdict.group = place_.store->add(place_.root + "/groups", 1, never);
    verdict.time_us = std::chrono::duration_cast<std::chrono::microseconds>(
                          std::chrono::system_clock::now().time_since_epoch())
                          .count();
    if (arrivals.do_all_admit) {
      verdict.joined = applicants_.ask(std::to_string(verdict.group), own_version());
    }
    place_.store->set(key(attempt_, "record"), bytes_of(text_of(verdict)), never);
    return verdict;
  }
  // Another rank was first. It may have ended before it wrote.
  if (const auto record = place_.store->get(key(attempt_, "record"), Deadline::after(kUnderWay))) {
    return verdict_from(words_of(*record));
  }
  begin(attempt_ + 1);
  return std::nullopt;
}

// It may be stopped, or hang, for ever: nobody else waits for it.
void Regrouping::tell_launcher_of(int rank) {
  if (const auto number = place_.store->get(launch_rank_key(place_.prefix, rank), at_once())) {
    place_.store->set(std::string(store::kLeftOutKey), *number, Deadline::never());
  }
}

void Regrouping::check_membership(const Verdict& verdict) const {
  if (std::ranges::find(verdict.ranks, place_.rank) == verdict.ranks.end()) {
    const Lost* const own = find(verdict.lost, place_.rank);
    throw StateError(fmt::format(
        "rank {}, shrink: expected to be among the ranks that go on, found that ranks {} have gone "
        "on without this one: {}",
        place_.rank, fmt::join(verdict.ranks, ", "),
        own == nullptr ? "it was not known to live" : own->cause));
  }
}

void Regrouping::end_applications(const Verdict& verdict, bool are_all_ready) {
  if (verdict.ranks.empty() || verdict.ranks.front() != place_.rank) {
    return;  // the lowest rank speaks for all
  }
  for (const std::int64_t id : verdict.joined) {
    applicants_.turn_away(
        id, are_all_ready ? "it has been taken in" : "the group with it has not come about");
  }
}

bool Regrouping::settle(const Verdict& verdict, bool is_ready, const Coming& coming,
                        const std::atomic<bool>& is_over) {
  const bool are_all_ready = have_settled(verdict, is_ready, coming, is_over);
  end_applications(verdict, are_all_ready);
  return are_all_ready;
}

bool Regrouping::have_settled(const Verdict& verdict, bool is_ready, const Coming& coming,
                              const std::atomic<bool>& is_over) {
  Store& store = *place_.store;
  const std::string decision = key(attempt_, "decision");
  bool has_decided = false;
  const auto decide = [&](std::string_view word) {
    if (store.add(key(attempt_, "deciders"), 1, Deadline::never()) == 1) {
      store.set(decision, bytes_of(word), Deadline::never());
      has_decided = true;
    }
  };
  if (!is_ready) {
    decide("given up");
  } else if (store.add(key(attempt_, "ready"), 1, Deadline::never()) == verdict.size()) {
    decide("ready");
  }
  std::optional<Clock::time_point> is_hopeless_since;
  while (true) {
    if (const auto word = store.get(decision, Deadline::after(kLook))) {
      // Who has written it late finds that the others have not waited for that.
      return words_of(*word) == "ready" && !(has_decided && is_given_up());
    }
    const bool is_one_gone =
        std::ranges::any_of(
            verdict.ranks,
            [&](int rank) { return rank != place_.rank && coming.why_gone(rank).has_value(); }) ||
        why_joined_gone(verdict).has_value();
    if (!is_hopeless_since && (is_one_gone || coming.deadline.expired())) {
      is_hopeless_since = Clock::now();
      decide("given up");
    }
    if (is_over || (is_hopeless_since && Clock::now() - *is_hopeless_since > kUnderWay)) {
      begin(attempt_ + 1);  // who was first to decide has ended, or is stopped, before it wrote
      return false;
    }
  }
}

}  // namespace bluefog
