#include "bluefog_cpp/engine/flight_recorder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <nlohmann/json.hpp>
#include <utility>

#include "bluefog_cpp/base/files/whole_file.hpp"
#include "bluefog_cpp/error.hpp"

namespace bluefog {
namespace {

std::string_view name_of_state(FlightRecorder::State state) {
  switch (state) {
    case FlightRecorder::State::Running:
      return "running";
    case FlightRecorder::State::Held:
      return "held";
    case FlightRecorder::State::Complete:
      return "complete";
    case FlightRecorder::State::Failed:
      return "failed";
  }
  return "unknown";
}

/// The time of the host's clock, which tells the records of several ranks apart.
double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

FlightRecorder::FlightRecorder(std::string prefix, int rank, int size, Logger log)
    : path_(fmt::format("{}{}.json", std::move(prefix), rank)),
      rank_(rank),
      size_(size),
      log_(std::move(log)) {
  try {
    check_writable(path_);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(fmt::format("flight record (BLUEFOG_FLIGHT_RECORDER): {}", error.what()));
  }
}

int FlightRecorder::add_context(std::uint64_t epoch, std::vector<int> ranks) {
  const std::scoped_lock lock(mutex_);
  size_ = std::max(size_, 1 + std::ranges::max(ranks));
  last_group_ = {.epoch = epoch, .ranks = std::move(ranks)};
  contexts_[next_context_] = last_group_;
  return next_context_++;
}

int FlightRecorder::next_context() {
  const std::scoped_lock lock(mutex_);
  return next_context_;
}

void FlightRecorder::begin_with_context(int number) {
  const std::scoped_lock lock(mutex_);
  next_context_ = std::max(next_context_, number);
}

// A ticket is the number of the call times the places, plus its place.
FlightRecorder::Entry& FlightRecorder::place_for_next() {
  const auto is_over = [](const Entry& entry) {
    return entry.state == State::Complete || entry.state == State::Failed;
  };
  std::size_t place = count_ % last_.size();
  for (std::size_t i = 0; i < last_.size() && !is_over(last_[place]); ++i) {
    place = (place + 1) % last_.size();
  }
  Entry& entry = last_[place];
  entry = {
      .ticket = ++count_ * last_.size() + place, .state = State::Running, .begun = Clock::now()};
  return entry;
}

FlightRecorder::Entry* FlightRecorder::find(Ticket ticket) {
  Entry& entry = last_[ticket % last_.size()];
  return entry.ticket == ticket ? &entry : nullptr;
}

FlightRecorder::Ticket FlightRecorder::begin(int context, std::uint64_t call, int partner,
                                             const Envelope& envelope) {
  const std::scoped_lock lock(mutex_);
  Entry& entry = place_for_next();
  entry.context = context;
  entry.epoch = contexts_.at(context).epoch;
  entry.call = call;
  entry.partner = partner < 0 ? partner : in_launch(context, partner);
  entry.kind = envelope.kind;
  entry.dtype = envelope.dtype;
  entry.count = envelope.count;
  entry.name = envelope.name;
  return entry.ticket;
}

FlightRecorder::Ticket FlightRecorder::begin_window_call(std::string_view call,
                                                         const Envelope& window) {
  const std::scoped_lock lock(mutex_);
  Entry& entry = place_for_next();
  entry.window_call = call;
  entry.epoch = last_group_.epoch;
  entry.dtype = window.dtype;
  entry.count = window.count;
  entry.name = window.name;
  return entry.ticket;
}

std::vector<int> FlightRecorder::in_launch(int context, const AwaitedRanks& awaited) const {
  std::vector<int> ranks;
  for (const int rank : awaited) {
    ranks.push_back(in_launch(context, rank));
  }
  return ranks;
}

void FlightRecorder::set_state(Ticket ticket, State state) {
  const std::scoped_lock lock(mutex_);
  if (Entry* const entry = find(ticket)) {
    entry->state = state;
    entry->ended = Clock::now();
  }
}

void FlightRecorder::note_wait(Ticket ticket, const AwaitedRanks& sources,
                               const AwaitedRanks& readers) {
  const std::scoped_lock lock(mutex_);
  if (Entry* const entry = find(ticket)) {
    entry->sources = in_launch(entry->context, sources);
    entry->readers = in_launch(entry->context, readers);
  }
}

void FlightRecorder::note_window_wait(Ticket ticket, std::string what, std::vector<int> ranks) {
  const std::scoped_lock lock(mutex_);
  if (Entry* const entry = find(ticket)) {
    entry->what = std::move(what);
    entry->sources = std::move(ranks);
  }
}

std::string_view FlightRecorder::kind_text(const Entry& entry) {
  if (!entry.window_call.empty()) {
    return entry.window_call;
  }
  return entry.kind == OpKind::Agreement ? entry.name.text() : bluefog::name_of(entry.kind);
}

std::string FlightRecorder::text_of(std::string_view reason) const {
  const auto now = Clock::now();
  const auto seconds_ago = [now](Clock::time_point then) {
    return std::chrono::duration<double>(now - then).count();
  };
  std::vector<const Entry*> entries;
  for (const Entry& entry : last_) {
    if (entry.ticket != 0) {
      entries.push_back(&entry);
    }
  }
  std::ranges::sort(entries, {}, &Entry::ticket);
  nlohmann::json calls = nlohmann::json::array();
  for (const Entry* const entry : entries) {
    const bool is_window_call = !entry->window_call.empty();
    nlohmann::json call{{"kind", kind_text(*entry)},
                        {"state", name_of_state(entry->state)},
                        {"begun_s_ago", seconds_ago(entry->begun)}};
    if (is_window_call || has_buffer(entry->kind)) {
      call["dtype"] = bluefog::name_of(entry->dtype);
      call["count"] = entry->count;
      call["name"] = entry->name.text();
    }
    if (is_window_call) {
      call["window_call"] = true;
    } else {
      call["call"] = is_pair_call(entry->call) ? entry->call - kFirstPairCall : entry->call;
    }
    if (entry->context > 0) {
      call["context"] = entry->context;
    }
    if (entry->epoch > 0) {
      call["epoch"] = entry->epoch;
    }
    if (entry->partner >= 0) {
      call["partner"] = entry->partner;
    }
    if (entry->state == State::Complete || entry->state == State::Failed) {
      call["ended_s_ago"] = seconds_ago(entry->ended);
    } else if (is_window_call) {
      call["what"] = entry->what;
      call["waits_for"] = entry->sources;
    } else {
      call["no_message_from"] = entry->sources;
      call["not_taken_by"] = entry->readers;
    }
    calls.push_back(std::move(call));
  }
  const nlohmann::json record{{"bluefog_flight_record", 1},
                              {"rank", rank_},
                              {"size", size_},
                              {"epoch", last_group_.epoch},
                              {"ranks", last_group_.ranks},
                              {"reason", reason},
                              {"written_at", seconds_since_1970()},
                              {"calls", calls}};
  return record.dump(1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void FlightRecorder::write(std::string_view reason) noexcept {
  try {
    const std::scoped_lock lock(mutex_);
    write_whole_file(path_, text_of(reason) + '\n');
  } catch (const std::exception& e) {
    log_.warning(fmt::format("flight record: {}", e.what()));
  }
}

}  // namespace bluefog
