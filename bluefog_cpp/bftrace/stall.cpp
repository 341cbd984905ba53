#include "bluefog_cpp/bftrace/stall.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "bluefog_cpp/base/error.hpp"

namespace bluefog::tracing {
namespace {

/// Ranks that each rank waits for, with the calls of windows that do.
using Waits = std::map<int, std::map<int, std::vector<std::string>>>;

std::string call_text(const RecordedCall& call) {
  const std::string context = call.context > 0 ? fmt::format("context {}, ", call.context) : "";
  if (call.is_window_call) {
    return context + call.text;
  }
  return context +
         (call.partner < 0
              ? fmt::format("call {}, {}", call.call, call.text)
              : fmt::format("pair call {} with rank {}, {}", call.call, call.partner, call.text));
}

RecordedCall parse_call(const nlohmann::json& json) {
  const bool is_window_call = json.value("window_call", false);
  RecordedCall call{.call = is_window_call ? 0 : json.at("call").get<std::uint64_t>(),
                    .context = json.value("context", 0),
                    .partner = json.value("partner", -1),
                    .text = json.at("kind").get<std::string>(),
                    .state = json.at("state").get<std::string>(),
                    .begun_s_ago = json.at("begun_s_ago").get<double>(),
                    .no_message_from = json.value("no_message_from", std::vector<int>{}),
                    .not_taken_by = json.value("not_taken_by", std::vector<int>{}),
                    .is_window_call = is_window_call,
                    .what = json.value("what", ""),
                    .waits_for = json.value("waits_for", std::vector<int>{})};
  if (call.text != "barrier") {
    const auto count = json.at("count").get<std::int64_t>();
    call.text += fmt::format("({}[{}]", json.at("dtype").get<std::string>(),
                             count < 0 ? "any" : std::to_string(count));
    if (const auto name = json.at("name").get<std::string>(); !name.empty()) {
      call.text += fmt::format(", {} '{}'", is_window_call ? "window" : "name", name);
    }
    call.text += ')';
  }
  return call;
}

void check_together(const std::vector<FlightRecord>& records) {
  if (records.empty()) {
    throw InvalidArgument("expected at least one flight record");
  }
  std::set<int> seen;
  for (const FlightRecord& record : records) {
    if (record.size != records.front().size) {
      throw InvalidArgument(
          fmt::format("expected records of one run: rank {} was one of {} ranks, rank {} one of {}",
                      records.front().rank, records.front().size, record.rank, record.size));
    }
    if (!seen.insert(record.rank).second) {
      throw InvalidArgument(
          fmt::format("expected one record per rank, found two of rank {}", record.rank));
    }
  }
}

/// What `rank` waits for in `call`, or holds, for whoever waits for it.
void add_waits(const RecordedCall& call, Waits::mapped_type& waits_for) {
  for (const auto* ranks : {&call.no_message_from, &call.not_taken_by}) {
    for (const int rank : *ranks) {
      waits_for[rank];
    }
  }
  for (const int rank : call.waits_for) {
    waits_for[rank].push_back(fmt::format("{}: {}", call_text(call), call.what));
  }
}

std::string describe(const FlightRecord& record, Waits::mapped_type& waits_for) {
  std::string text = fmt::format("rank {}: {}\n", record.rank, record.reason);
  for (const RecordedCall& call : record.calls) {
    const bool is_waiting = !call.no_message_from.empty() || !call.not_taken_by.empty();
    if (call.state == "held") {
      text += fmt::format("  {}, begun {:.1f} s before, holds {}\n", call_text(call),
                          call.begun_s_ago, call.what);
      continue;
    }
    if (call.state != "running" && !is_waiting) {
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
    add_waits(call, waits_for);
  }
  if (record.calls.empty()) {
    text += "  it has made no call\n";
  } else if (waits_for.empty()) {
    const RecordedCall& last = record.calls.back();
    text += fmt::format("  waits for nobody; its last was {}, {}\n", call_text(last), last.state);
  }
  return text;
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
    for (const auto& [other, calls] : found->second) {
      if (other == from) {
        return true;
      }
      if (reached.insert(other).second) {
        next.push_back(other);
      }
    }
  }
  return false;
}

/// The calls of windows that wait for `awaited`.
std::string window_calls_for(const Waits& waits, int awaited) {
  std::string text;
  for (const auto& [rank, others] : waits) {
    if (const auto found = others.find(awaited); found != others.end()) {
      for (const std::string& call : found->second) {
        text += fmt::format("  Rank {} waits for rank {} in {}.\n", rank, awaited, call);
      }
    }
  }
  return text;
}

std::string verdict(const Waits& waits, int size) {
  std::set<int> awaited;
  for (const auto& [rank, others] : waits) {
    for (const auto& [other, calls] : others) {
      awaited.insert(other);
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
    if (found == waits.end()) {
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

}  // namespace

FlightRecord parse_record(const std::string& path, const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("bluefog_flight_record")) {
    throw InvalidArgument(
        fmt::format("{}: expected a flight record (BLUEFOG_FLIGHT_RECORDER)", path));
  }
  try {
    FlightRecord record{.rank = json.at("rank").get<int>(),
                        .size = json.at("size").get<int>(),
                        .reason = json.at("reason").get<std::string>()};
    for (const auto& call : json.at("calls")) {
      record.calls.push_back(parse_call(call));
    }
    return record;
  } catch (const nlohmann::json::exception& e) {
    throw InvalidArgument(fmt::format("{}: expected a flight record: {}", path, e.what()));
  }
}

std::string explain_stall(std::vector<FlightRecord> records) {
  check_together(records);
  std::ranges::sort(records, {}, &FlightRecord::rank);
  Waits waits;
  std::string text;
  for (const FlightRecord& record : records) {
    text += describe(record, waits[record.rank]);
  }
  return text + '\n' + verdict(waits, records.front().size);
}

}  // namespace bluefog::tracing
