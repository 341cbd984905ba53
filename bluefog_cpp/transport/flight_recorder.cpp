#include "bluefog_cpp/transport/flight_recorder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

namespace bluefog {
namespace {

std::string_view name_of_state(FlightRecorder::State state) {
  switch (state) {
    case FlightRecorder::State::Running:
      return "running";
    case FlightRecorder::State::Complete:
      return "complete";
    case FlightRecorder::State::Failed:
      return "failed";
  }
  return "unknown";
}

}  // namespace

FlightRecorder::FlightRecorder(std::string prefix, int rank, int size, Logger log)
    : path_(fmt::format("{}{}.json", std::move(prefix), rank)),
      rank_(rank),
      size_(size),
      log_(std::move(log)) {}

void FlightRecorder::begin(std::uint64_t call, int partner, const Envelope& envelope) {
  Entry& entry = last_[count_++ % last_.size()];
  entry = {.call = call,
           .partner = partner,
           .kind = envelope.kind,
           .dtype = envelope.dtype,
           .count = envelope.count,
           .name = envelope.name,
           .state = State::Running,
           .begun = Clock::now(),
           .ended = {}};
}

void FlightRecorder::end(std::uint64_t call, int partner, State state) {
  // Nearly always among the last ones.
  for (std::size_t i = count_; i > 0 && i + last_.size() > count_; --i) {
    Entry& entry = last_[(i - 1) % last_.size()];
    if (entry.call == call && entry.partner == partner) {
      entry.state = state;
      entry.ended = Clock::now();
      return;
    }
  }
}

std::string FlightRecorder::text_of(std::string_view reason, const std::vector<Wait>& waits) const {
  const auto now = Clock::now();
  const auto seconds_ago = [now](Clock::time_point then) {
    return std::chrono::duration<double>(now - then).count();
  };
  nlohmann::json calls = nlohmann::json::array();
  const std::size_t kept = std::min(count_, last_.size());
  for (std::size_t i = count_ - kept; i < count_; ++i) {
    const Entry& entry = last_[i % last_.size()];
    nlohmann::json call{
        {"call", is_pair_call(entry.call) ? entry.call - kFirstPairCall : entry.call},
        {"kind", bluefog::name_of(entry.kind)},
        {"dtype", bluefog::name_of(entry.dtype)},
        {"count", entry.count},
        {"name", entry.name.text()},
        {"state", name_of_state(entry.state)},
        {"begun_s_ago", seconds_ago(entry.begun)}};
    if (entry.partner >= 0) {
      call["partner"] = entry.partner;
    }
    if (entry.state != State::Running) {
      call["ended_s_ago"] = seconds_ago(entry.ended);
    }
    const auto wait = std::ranges::find_if(
        waits, [&](const Wait& w) { return w.call == entry.call && w.partner == entry.partner; });
    if (wait != waits.end()) {
      call["no_message_from"] = wait->sources;
      call["not_taken_by"] = wait->readers;
    }
    calls.push_back(std::move(call));
  }
  const nlohmann::json record{{"bluefog_flight_record", 1},
                              {"rank", rank_},
                              {"size", size_},
                              {"reason", reason},
                              {"calls", calls}};
  return record.dump(1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void FlightRecorder::write(std::string_view reason, const std::vector<Wait>& waits) noexcept {
  try {
    // Whole or not at all, also for a reader that looks meanwhile.
    const std::string unfinished = path_ + ".part";
    std::ofstream file(unfinished, std::ios::trunc);
    file << text_of(reason, waits) << '\n';
    file.close();
    if (!file || std::rename(unfinished.c_str(), path_.c_str()) != 0) {
      log_.warning(fmt::format("flight record: cannot write {}: {}", path_, std::strerror(errno)));
    }
  } catch (const std::exception& e) {
    log_.warning(fmt::format("flight record: cannot write {}: {}", path_, e.what()));
  }
}

}  // namespace bluefog
