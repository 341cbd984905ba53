#include "tools/bftrace/stall.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "bluefog_cpp/error.hpp"

namespace bluefog::bftrace {
namespace {

/// One call that waits for one rank.
struct Wait {
  int awaited = 0;
  const RecordedCall* call = nullptr;
};
/// The waits of each rank that left a record.
using Waits = std::map<int, std::vector<Wait>>;

std::string call_text(const RecordedCall& call) {
  const std::string context = (call.epoch > 0 ? fmt::format("epoch {}, ", call.epoch) : "") +
                              (call.context > 0 ? fmt::format("context {}, ", call.context) : "");
  if (call.is_window_call) {
    return context + call.text;
  }
  return context + (call.partner < 0 ? fmt::format("call {}, {}", call.call, call.text)
                                     : fmt::format("pair call {} with rank {}, {}", call.call,
                                                   call.partner, call.text));
}

void check_together(const std::vector<FlightRecord>& records) {
  if (records.empty()) {
    throw InvalidArgument("expected at least one flight record");
  }
  std::set<int> seen;
  std::map<std::uint64_t, const FlightRecord*> first_of_epoch;  // ranks that join are more
  for (const FlightRecord& record : records) {
    const FlightRecord& first = *first_of_epoch.try_emplace(record.epoch, &record).first->second;
    if (record.size != first.size) {
      throw InvalidArgument(
          fmt::format("expected records of one run: rank {} was one of {} ranks, rank {} one of {}",
                      first.rank, first.size, record.rank, record.size));
    }
    if (!seen.insert(record.rank).second) {
      throw InvalidArgument(
          fmt::format("expected one record per rank, found two of rank {}", record.rank));
    }
  }
}

bool is_waiting(const RecordedCall& call) {
  return !call.no_message_from.empty() || !call.not_taken_by.empty();
}

/// Whether the rank has gone on in another group since: nobody waits for anybody in it any more.
bool is_of_former_group(const RecordedCall& call, const FlightRecord& record) {
  return call.epoch < record.epoch;
}

std::vector<Wait> waits_of(const FlightRecord& record) {
  std::vector<Wait> waits;
  for (const RecordedCall& call : record.calls) {
    if (call.state == "held" || is_of_former_group(call, record) ||
        (call.state != "running" && !is_waiting(call))) {
      continue;
    }
    std::set<int> awaited;
    for (const auto* ranks : {&call.no_message_from, &call.not_taken_by, &call.waits_for}) {
      awaited.insert(ranks->begin(), ranks->end());
    }
    for (const int rank : awaited) {
      waits.push_back({.awaited = rank, .call = &call});
    }
  }
  return waits;
}

std::string describe(const FlightRecord& record, bool waits_for_nobody) {
  std::string text = record.epoch == 0
                         ? fmt::format("rank {}: {}\n", record.rank, record.reason)
                         : fmt::format("rank {}, in epoch {} with ranks {}: {}\n", record.rank,
                                       record.epoch, fmt::join(record.ranks, ", "), record.reason);
  for (const RecordedCall& call : record.calls) {
    if (is_of_former_group(call, record)) {
      continue;
    }
    if (call.state == "held") {
      text += fmt::format("  {}, begun {:.1f} s before, holds {}\n", call_text(call),
                          call.begun_s_ago, call.what);
      continue;
    }
    if (call.state != "running" && !is_waiting(call)) {
      continue;
    }
    text += fmt::format("  {}, begun {:.1f} s before", call_text(call), call.begun_s_ago);
    if (!call.what.empty()) {
      text += fmt::format("; waits for {}", call.what);
    }
    if (!call.no_message_from.empty()) {
      text += fmt::format("; no message from {}", fmt::join(call.no_message_from, ", "));
    }
    if (!call.not_taken_by.empty()) {
      text += fmt::format("; not taken by {}", fmt::join(call.not_taken_by, ", "));
    }
    text += '\n';
  }
  if (record.calls.empty()) {
    text += "  it has made no call\n";
  } else if (waits_for_nobody) {
    const RecordedCall& last = record.calls.back();
    text += fmt::format("  waits for nobody; its last was {}, {}\n", call_text(last), last.state);
  }
  return text;
}

/// A call that its rank began only after others had recorded that they wait for that rank.
struct Late {
  const RecordedCall* call = nullptr;
  /// The call that its rank was in for most of the time that it was waited for, or null.
  const RecordedCall* before = nullptr;
  std::vector<int> waiters{};
  /// Seconds from the first waiter's wait, and from the first waiter's record, to the call's begin.
  double after_wait_s = 0.0;
  double after_record_s = 0.0;
};

/// The call that `record` was in for more than half of the `waited` seconds before `late`.
const RecordedCall* find_call_before(const RecordedCall& late, const FlightRecord& record,
                                     double waited) {
  for (const RecordedCall& call : record.calls) {
    if (&call == &late || call.state == "held" || !call.ended_s_ago) {
      continue;
    }
    const double begin = std::min(call.begun_s_ago, late.begun_s_ago + waited);
    const double end = std::max(*call.ended_s_ago, late.begun_s_ago);
    if (begin - end > waited / 2) {
      return &call;
    }
  }
  return nullptr;
}

/// `call` of `record`, if it came too late for somebody.
std::optional<Late> find_late(const RecordedCall& call, const FlightRecord& record,
                              const std::vector<FlightRecord>& records, const Waits& waits) {
  if (!record.written_at) {
    return std::nullopt;
  }
  const double begun = *record.written_at - call.begun_s_ago;
  Late late{.call = &call};
  for (const FlightRecord& other : records) {
    if (other.rank == record.rank || !other.written_at || *other.written_at >= begun) {
      continue;
    }
    bool waits_for_it = false;
    for (const Wait& wait : waits.at(other.rank)) {
      if (wait.awaited == record.rank) {
        waits_for_it = true;
        late.after_wait_s =
            std::max(late.after_wait_s, begun - (*other.written_at - wait.call->begun_s_ago));
      }
    }
    if (waits_for_it) {
      late.waiters.push_back(other.rank);
      late.after_record_s = std::max(late.after_record_s, begun - *other.written_at);
    }
  }
  if (late.waiters.empty()) {
    return std::nullopt;
  }
  late.before = find_call_before(call, record, late.after_wait_s);
  return late;
}

/// Removes the waits for late calls from `waits`. @return the first late call of each rank.
std::map<int, Late> take_out_late_calls(const std::vector<FlightRecord>& records, Waits& waits) {
  std::map<int, Late> first;
  Waits others = waits;
  for (const FlightRecord& record : records) {
    std::erase_if(others[record.rank], [&](const Wait& wait) {
      auto late = find_late(*wait.call, record, records, waits);
      if (!late) {
        return false;
      }
      first.try_emplace(record.rank, *std::move(late));
      return true;
    });
  }
  waits = std::move(others);
  return first;
}

/// Whether `from` waits, through others, for itself.
bool is_in_circle(const Waits& waits, int from) {
  std::set<int> reached;
  std::vector<int> next{from};
  while (!next.empty()) {
    const int rank = next.back();
    next.pop_back();
    const auto found = waits.find(rank);
    if (found == waits.end()) {
      continue;
    }
    for (const Wait& wait : found->second) {
      if (wait.awaited == from) {
        return true;
      }
      if (reached.insert(wait.awaited).second) {
        next.push_back(wait.awaited);
      }
    }
  }
  return false;
}

/// The calls of windows that wait for `awaited`.
std::string window_calls_for(const Waits& waits, int awaited) {
  std::string text;
  for (const auto& [rank, waits_of_rank] : waits) {
    for (const Wait& wait : waits_of_rank) {
      if (wait.awaited == awaited && wait.call->is_window_call) {
        text += fmt::format("  Rank {} waits for rank {} in {}: {}.\n", rank, awaited,
                            call_text(*wait.call), wait.call->what);
      }
    }
  }
  return text;
}

std::string late_text(int rank, const Late& late) {
  const bool is_one = late.waiters.size() == 1;
  const std::string first =
      is_one ? fmt::format("rank {}", late.waiters.front()) : "the first of them";
  const std::string until_then =
      late.before == nullptr
          ? "it was stopped, or computing"
          : fmt::format(
                "it was in {}, {}, which took it {:.1f} s: whoever came late to that held up "
                "all",
                call_text(*late.before), late.before->state,
                late.before->begun_s_ago - *late.before->ended_s_ago);
  return fmt::format(
      "Rank {} {} rank{} {}: it began {}, {:.1f} s after {} had begun to wait for it, and {:.1f} s "
      "after {} wrote its record; until then {}.\n",
      rank, late.before == nullptr ? "held up" : "came late to", is_one ? "" : "s",
      fmt::join(late.waiters, ", "), call_text(*late.call), late.after_wait_s, first,
      late.after_record_s, first, until_then);
}

std::string verdict(const Waits& waits, const std::map<int, Late>& late, int size) {
  std::set<int> awaited;
  for (const auto& [rank, waits_of_rank] : waits) {
    for (const Wait& wait : waits_of_rank) {
      awaited.insert(wait.awaited);
    }
  }
  if (awaited.empty()) {
    return "No rank waits for another one.\n";
  }
  std::string text;
  std::vector<int> circle;
  for (const int rank : awaited) {
    const auto found = waits.find(rank);
    if (rank < 0 || rank >= size) {
      continue;
    }
    if (const auto came_late = late.find(rank); came_late != late.end()) {
      text += late_text(rank, came_late->second);
      text += window_calls_for(waits, rank);
    } else if (found == waits.end()) {
      text += fmt::format(
          "Rank {} is waited for and left no record: it ended, or was still computing.\n", rank);
      text += window_calls_for(waits, rank);
    } else if (found->second.empty()) {
      text += fmt::format("Rank {} is waited for and waits for nobody: it holds up the others.\n",
                          rank);
      text += window_calls_for(waits, rank);
    } else if (is_in_circle(waits, rank)) {
      circle.push_back(rank);
    }
  }
  if (text.empty() && !circle.empty()) {
    text = fmt::format("Ranks {} wait for each other: compare their calls above.\n",
                       fmt::join(circle, ", "));
    for (const int rank : circle) {
      text += window_calls_for(waits, rank);
    }
  }
  return text;
}

/// Takes the records of groups that others have gone on from out of `records`, and says so: a rank
/// that was left out has the waits of its former group.
std::string take_out_former_groups(std::vector<FlightRecord>& records) {
  const FlightRecord& newest = *std::ranges::max_element(records, {}, &FlightRecord::epoch);
  const std::uint64_t epoch = newest.epoch;
  const std::vector<int> members = newest.ranks;
  std::string text;
  std::erase_if(records, [&](const FlightRecord& record) {
    if (record.epoch == epoch) {
      return false;
    }
    const bool is_member = std::ranges::find(members, record.rank) != members.end();
    text += fmt::format("Rank {}'s record is of epoch {}; in epoch {} ranks {} {}.\n", record.rank,
                        record.epoch, epoch, fmt::join(members, ", "),
                        is_member ? "train, that one too, which has written none since"
                                  : "have gone on without it");
    return true;
  });
  return text;
}

}  // namespace

std::string explain_stall(std::vector<FlightRecord> records) {
  check_together(records);
  std::ranges::sort(records, {}, &FlightRecord::rank);
  const int size = std::ranges::max_element(records, {}, &FlightRecord::size)->size;
  std::string text;
  for (const FlightRecord& record : records) {
    text += describe(record, waits_of(record).empty());
  }
  const std::string former_groups = take_out_former_groups(records);
  Waits waits;
  for (const FlightRecord& record : records) {
    waits[record.rank] = waits_of(record);
  }
  const std::map<int, Late> late = take_out_late_calls(records, waits);
  return text + '\n' + former_groups + verdict(waits, late, size);
}

}  // namespace bluefog::bftrace
