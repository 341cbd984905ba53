#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bluefog_cpp/transport/transport.hpp"

namespace bluefog::testing {

/// `size` bytes: first, first + 1, …
[[nodiscard]] std::vector<std::byte> rising_bytes(std::size_t size, int first);

/// A transport whose other ranks are the test: it says what arrives, in which order, and how much
/// room there is for what is sent.
///
/// With an engine the script runs under its mutex, in `Engine::run_exclusively`.
class ScriptedTransport final : public Transport {
 public:
  /// A message of this rank.
  struct Sent {
    MessageHeader header{};
    Lane lane = Lane::Ordinary;
    std::vector<int> readers{};
    std::vector<std::byte> data{};
    std::optional<std::string> aborted{};
  };
  /// Everything that has left this rank, in its order; outlives the transport.
  struct Outbox {
    std::vector<Sent> messages{};
    std::vector<std::pair<int, ControlMessage>> reports{};
    /// "publish call 1", "abort call 1", "report call 1".
    std::vector<std::string> order{};
  };

  // The script.
  /// The header of a message from `source` arrives.
  void begin_message(int source, const MessageHeader& header, Lane lane = Lane::Ordinary);
  /// More bytes of the message that `source` began last.
  void deliver(int source, std::span<const std::byte> bytes, Lane lane = Lane::Ordinary);
  /// A whole message.
  void send_message(int source, MessageHeader header, std::span<const std::byte> bytes,
                    Lane lane = Lane::Ordinary);
  /// `source` ends its last message early.
  void abort_message(int source, std::string reason, Lane lane = Lane::Ordinary);
  /// A control message from `source` arrives.
  void send_report(int source, ControlMessage report);
  using Act = std::function<void(ScriptedTransport&)>;
  /// `rank` will not come any more. @param last_act played when its death is first noticed.
  void die(int rank, std::string cause, Act last_act = {}) {
    dead_[rank] = {std::move(cause), std::move(last_act)};
  }
  /// Room for so many bytes more; a header needs none.
  void set_room(std::size_t bytes) { room_ = bytes; }
  /// Whether each reader has a stream of its own.
  void set_stream_per_reader(bool has_one) { has_stream_per_reader_ = has_one; }
  /// Readers whose messages find no room, as the first of theirs.
  void block(std::set<int> readers) { blocked_ = std::move(readers); }
  /// Whether headers find room.
  void set_open(bool open) { open_ = open; }
  /// Whether the end marks of aborted messages find room.
  void set_open_for_end_marks(bool open) { open_for_end_marks_ = open; }
  /// Whether messages of one lane may be here before earlier ones of another.
  void set_lanes_overtake(bool lanes_overtake) { lanes_overtake_ = lanes_overtake; }
  /// `rank` is known to have begun `call`.
  void show_call(int rank, SeenCall call) { seen_[rank] = call; }
  /// `rank` shows what it does, as a rank of this host does.
  void show_standing(int rank, Standing standing) { standings_[rank] = standing; }

  [[nodiscard]] std::shared_ptr<const Outbox> outbox() const { return outbox_; }
  /// Messages of `source` that nobody has taken off the stream.
  [[nodiscard]] std::size_t waiting_messages(int source, Lane lane = Lane::Ordinary) const;

  // Transport.
  [[nodiscard]] std::string_view name() const noexcept override { return "scripted"; }
  [[nodiscard]] bool has_stream_per_reader() const noexcept override {
    return has_stream_per_reader_;
  }
  [[nodiscard]] bool reaches(int /*rank*/) const noexcept override { return true; }
  bool publish(Departure& departure) override;
  bool abort(Departure& departure, std::string_view reason) override;
  [[nodiscard]] const MessageHeader* arrived(int source, Lane lane) override;
  [[nodiscard]] bool has_all_before(int /*source*/, Lane /*lane*/) override {
    return !lanes_overtake_;
  }
  [[nodiscard]] std::span<const std::byte> readable(int source, Lane lane) override;
  void consume(int source, Lane lane, std::size_t bytes) override;
  [[nodiscard]] bool at_end(int source, Lane lane) const override;
  [[nodiscard]] std::optional<std::string> aborted(int source, Lane lane) override;
  void finish(int source, Lane lane) override;
  void send_control(int rank, const ControlMessage& message) override;
  [[nodiscard]] std::optional<std::pair<int, ControlMessage>> poll_control() override;
  [[nodiscard]] std::optional<std::string> cause_of_death(int rank) override;
  [[nodiscard]] bool has_died(int rank) override { return dead_.contains(rank); }
  [[nodiscard]] bool has_left(int /*rank*/) override { return false; }
  [[nodiscard]] SeenCall last_call(int rank) const override;
  [[nodiscard]] std::string last_seen(int rank) const override;
  [[nodiscard]] std::optional<Standing> standing_of(int rank) const override;
  void note_call(CallId /*id*/, OpKind /*kind*/) override {}

 private:
  struct Arriving {
    MessageHeader header{};
    /// The bytes that are here; its capacity is that of the whole, so that spans stay valid.
    std::vector<std::byte> data{};
    std::size_t consumed = 0;
    std::optional<std::string> aborted{};
  };
  struct Death {
    std::string cause{};
    Act last_act{};
  };
  using Stream = std::deque<Arriving>;

  [[nodiscard]] Stream& stream(int source, Lane lane) { return streams_[{source, lane}]; }

  std::map<std::pair<int, Lane>, Stream> streams_;
  std::deque<std::pair<int, ControlMessage>> arriving_reports_;
  std::map<int, Death> dead_;
  std::map<int, SeenCall> seen_;
  std::map<int, Standing> standings_;
  std::size_t room_ = std::numeric_limits<std::size_t>::max();
  bool lanes_overtake_ = false;
  bool has_stream_per_reader_ = false;
  std::set<int> blocked_{};
  bool open_ = true;
  bool open_for_end_marks_ = true;
  std::shared_ptr<Outbox> outbox_ = std::make_shared<Outbox>();
};

}  // namespace bluefog::testing
