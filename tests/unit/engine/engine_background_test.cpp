#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "bluefog_cpp/engine/engine.hpp"

namespace bluefog {
namespace {

constexpr int kNeeded = 200;
constexpr std::array<std::byte, 4> kPayload{std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}};

/// A network on which one message of rank 1 comes while this rank drives it.
class SlowNetwork final : public Transport {
 public:
  explicit SlowNetwork(std::atomic<int>& driven) : driven_(driven) {}

  [[nodiscard]] std::string_view name() const noexcept override { return "slow"; }
  [[nodiscard]] bool reaches(int rank) const noexcept override { return rank == 1; }
  bool publish(Departure& departure) override {
    departure.announced = true;
    departure.published = departure.header.bytes;
    return true;
  }
  bool abort(Departure&, std::string_view) override { return true; }
  [[nodiscard]] const MessageHeader* arrived(int, Lane) override {
    return has_come(1, Lane::Deep, {}) && !is_taken_ ? &header_ : nullptr;
  }
  [[nodiscard]] std::span<const std::byte> readable(int, Lane) override {
    return std::span(kPayload).subspan(used_);
  }
  void consume(int, Lane, std::size_t bytes) override { used_ += bytes; }
  [[nodiscard]] bool at_end(int, Lane) const override { return used_ == kPayload.size(); }
  [[nodiscard]] std::optional<std::string> aborted(int, Lane) override { return std::nullopt; }
  void finish(int, Lane) override { is_taken_ = true; }
  void send_control(int, const ControlMessage&) override {}
  [[nodiscard]] std::optional<std::pair<int, ControlMessage>> poll_control() override {
    return std::nullopt;
  }
  bool progress() override {
    ++driven_;
    return false;
  }
  [[nodiscard]] bool has_come(int, Lane, CallId) override { return driven_ >= kNeeded; }
  [[nodiscard]] bool needs_polling() const noexcept override { return true; }
  bool has_left(int /*rank*/) override { return false; }
  [[nodiscard]] std::optional<std::string> cause_of_death(int) override { return std::nullopt; }
  [[nodiscard]] SeenCall last_call(int) const override { return {}; }
  [[nodiscard]] std::string last_seen(int) const override { return ""; }
  void note_call(CallId id, OpKind) override {
    header_.id = id;
    header_.bytes = kPayload.size();
    header_.envelope = envelope();
  }

  static Envelope envelope() {
    return Envelope::make(OpKind::NeighborAllreduce, Dtype::UInt8, kPayload.size());
  }

 private:
  std::atomic<int>& driven_;
  MessageHeader header_{};
  std::size_t used_ = 0;
  bool is_taken_ = false;
};

/// Receives from rank 1, once somebody waits for it.
class RestingCall final : public Operation {
 public:
  [[nodiscard]] const Envelope& envelope() const noexcept override { return envelope_; }
  bool next(ExchangeSpec& spec) override {
    spec.envelope = envelope_;
    spec.incoming = {&incoming_, 1};
    spec.bytes = kPayload.size();
    spec.lane = Lane::Deep;
    spec.consumption = Consumption::OnWait;
    return true;
  }
  void receive(std::size_t, std::size_t bytes, std::span<const Piece>) override {
    received += bytes;
  }

  std::size_t received = 0;

 private:
  Envelope envelope_ = SlowNetwork::envelope();
  Incoming incoming_{.source = {.rank = 1}, .bytes = kPayload.size()};
};

TEST(EngineBackground, WhatRestsUntilItIsWaitedForComesMeanwhile) {
  std::atomic<int> driven{0};
  EngineParts parts;
  parts.size = 2;
  parts.transports.push_back(std::make_unique<SlowNetwork>(driven));
  parts.routes = {nullptr, parts.transports[0].get()};
  const auto engine = std::make_shared<Engine>(std::move(parts));
  const auto call = engine->make_operation<RestingCall>();
  const Work work = engine->submit(call);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (driven < kNeeded && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::yield();  // no call
  }
  ASSERT_GE(driven, kNeeded) << "nobody drove the network";
  EXPECT_FALSE(work.done());
  EXPECT_EQ(call->received, 0U);
  work.wait();
  EXPECT_EQ(call->received, kPayload.size());
  engine->close();
}

}  // namespace
}  // namespace bluefog
