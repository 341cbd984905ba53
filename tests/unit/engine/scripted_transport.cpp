#include "tests/unit/engine/scripted_transport.hpp"

#include <algorithm>
#include <stdexcept>

namespace bluefog::testing {

std::vector<std::byte> rising_bytes(std::size_t size, int first) {
  std::vector<std::byte> bytes(size);
  std::ranges::generate(bytes, [next = first]() mutable { return std::byte(next++ & 0xff); });
  return bytes;
}

void ScriptedTransport::begin_message(int source, const MessageHeader& header, Lane lane) {
  Arriving& message = stream(source, lane).emplace_back();
  message.header = header;
  message.data.reserve(header.bytes);
}

void ScriptedTransport::deliver(int source, std::span<const std::byte> bytes, Lane lane) {
  Arriving& message = stream(source, lane).back();
  if (message.data.size() + bytes.size() > message.header.bytes) {
    throw std::logic_error("the script delivers more bytes than the header says");
  }
  message.data.insert(message.data.end(), bytes.begin(), bytes.end());
}

void ScriptedTransport::send_message(int source, MessageHeader header,
                                     std::span<const std::byte> bytes, Lane lane) {
  header.bytes = bytes.size();
  begin_message(source, header, lane);
  deliver(source, bytes, lane);
}

void ScriptedTransport::abort_message(int source, std::string reason, Lane lane) {
  stream(source, lane).back().aborted = std::move(reason);
}

void ScriptedTransport::send_report(int source, ControlMessage report) {
  arriving_reports_.emplace_back(source, std::move(report));
}

std::size_t ScriptedTransport::waiting_messages(int source, Lane lane) const {
  const auto it = streams_.find({source, lane});
  return it == streams_.end() ? 0 : it->second.size();
}

bool ScriptedTransport::publish(Departure& departure) {
  if (!departure.announced) {
    if (!open_) {
      return false;
    }
    Sent& sent = outbox_->messages.emplace_back();
    sent.header = departure.header;
    sent.lane = departure.lane;
    for (const WeightedRank& reader : departure.readers) {
      sent.readers.push_back(reader.rank);
    }
    outbox_->order.push_back("publish " + call_text(departure.header.id.call()));
  }
  const int reader = departure.readers.front().rank;
  Sent& sent =
      *std::find_if(outbox_->messages.rbegin(), outbox_->messages.rend(), [&](const Sent& message) {
        return message.lane == departure.lane &&
               (!has_stream_per_reader_ || message.readers.front() == reader);
      });
  if (departure.announced && sent.header.id != departure.header.id) {
    throw std::logic_error("a message begins before the one before it has ended");
  }
  const std::size_t end = std::min<std::size_t>(departure.header.bytes, departure.here);
  const std::size_t room = blocked_.contains(reader) ? 0 : room_;
  const std::size_t bytes = std::min(room, end - departure.published);
  const bool moved = !departure.announced || bytes > 0;
  departure.announced = true;
  const std::byte* const from = departure.data + departure.published;
  sent.data.insert(sent.data.end(), from, from + bytes);
  departure.published += bytes;
  room_ -= bytes;
  return moved;
}

bool ScriptedTransport::abort(Departure& departure, std::string_view reason) {
  if (!open_for_end_marks_) {
    return false;
  }
  const auto sent = std::ranges::find(outbox_->messages, departure.header.id,
                                      [](const Sent& message) { return message.header.id; });
  sent->aborted = std::string(reason);
  departure.published = departure.header.bytes;
  outbox_->order.push_back("abort " + call_text(departure.header.id.call()));
  return true;
}

const MessageHeader* ScriptedTransport::arrived(int source, Lane lane) {
  const Stream& messages = stream(source, lane);
  return messages.empty() ? nullptr : &messages.front().header;
}

std::span<const std::byte> ScriptedTransport::readable(int source, Lane lane) {
  const Stream& messages = stream(source, lane);
  if (messages.empty()) {
    return {};
  }
  return std::span(messages.front().data).subspan(messages.front().consumed);
}

void ScriptedTransport::consume(int source, Lane lane, std::size_t bytes) {
  Arriving& message = stream(source, lane).front();
  message.consumed += bytes;
  if (message.consumed > message.data.size()) {
    throw std::logic_error("more bytes are consumed than have come");
  }
}

bool ScriptedTransport::at_end(int source, Lane lane) const {
  const Arriving& message = streams_.at({source, lane}).front();
  return message.consumed == message.header.bytes;
}

std::optional<std::string> ScriptedTransport::aborted(int source, Lane lane) {
  const Stream& messages = stream(source, lane);
  return messages.empty() ? std::nullopt : messages.front().aborted;
}

void ScriptedTransport::finish(int source, Lane lane) {
  const Arriving& message = stream(source, lane).front();
  if (message.consumed != message.header.bytes && !message.aborted) {
    throw std::logic_error("a message is taken off its stream before its end");
  }
  stream(source, lane).pop_front();
}

void ScriptedTransport::send_control(int rank, const ControlMessage& message) {
  outbox_->reports.emplace_back(rank, message);
  outbox_->order.push_back("report " + call_text(message.call));
}

std::optional<std::pair<int, ControlMessage>> ScriptedTransport::poll_control() {
  if (arriving_reports_.empty()) {
    return std::nullopt;
  }
  auto report = std::move(arriving_reports_.front());
  arriving_reports_.pop_front();
  return report;
}

std::optional<std::string> ScriptedTransport::cause_of_death(int rank) {
  const auto it = dead_.find(rank);
  if (it == dead_.end()) {
    return std::nullopt;
  }
  if (const Act last_act = std::exchange(it->second.last_act, {})) {
    last_act(*this);
  }
  return it->second.cause;
}

Transport::SeenCall ScriptedTransport::last_call(int rank) const {
  const auto it = seen_.find(rank);
  return it == seen_.end() ? SeenCall{} : it->second;
}

std::string ScriptedTransport::last_seen(int rank) const {
  const SeenCall seen = last_call(rank);
  return seen.call == 0 ? "not seen yet" : "last seen in " + call_text(seen.call);
}

std::optional<Transport::Standing> ScriptedTransport::standing_of(int rank) const {
  const auto it = standings_.find(rank);
  return it == standings_.end() ? std::nullopt : std::make_optional(it->second);
}

}  // namespace bluefog::testing
