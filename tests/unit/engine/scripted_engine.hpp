#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bluefog_cpp/engine/engine.hpp"
#include "tests/unit/engine/scripted_call.hpp"
#include "tests/unit/engine/scripted_transport.hpp"

namespace bluefog::testing {

/// An engine of rank 0 among three ranks, of which the test plays ranks 1 and 2.
class ScriptedEngine : public ::testing::Test {
 protected:
  void SetUp() override { connect({}); }
  void TearDown() override { engine_->close(); }

  void connect(WaitPolicy policy, bool losses_revoke = false) {
    if (engine_) {
      engine_->close();
    }
    auto transport = std::make_unique<ScriptedTransport>();
    transport_ = transport.get();
    outbox_ = transport->outbox();
    EngineParts parts;
    parts.size = 3;
    parts.routes = {nullptr, transport_, transport_};
    parts.transports.push_back(std::move(transport));
    parts.policy = policy;
    parts.losses_revoke = losses_revoke;
    engine_ = std::make_shared<Engine>(std::move(parts));
  }

  /// The other ranks act at once, while no call is driven.
  void script(const std::function<void(ScriptedTransport&)>& act) {
    engine_->run_exclusively([&] { act(*transport_); });
  }

  [[nodiscard]] static MessageHeader header(std::uint64_t call, std::size_t bytes = 4) {
    return {.id = CallId::make(call, 0),
            .bytes = bytes,
            .weight = 1.0,
            .envelope = ScriptedCall::envelope_of(bytes)};
  }
  /// `source` makes that call: its message is `rising_bytes(4, first)`.
  static void send(ScriptedTransport& transport, int source, std::uint64_t call, int first = 1) {
    transport.send_message(source, header(call), rising_bytes(4, first),
                           is_pair_call(call) ? Lane::Pair : Lane::Ordinary);
  }
  static ControlMessage report(ControlMessage::Kind kind, std::uint64_t call, std::string text) {
    return {.kind = kind, .call = call, .text = std::move(text)};
  }
  static ControlMessage refusal(std::uint64_t call, std::string text) {
    return report(ControlMessage::Kind::Refusal, call, std::move(text));
  }

  [[nodiscard]] std::shared_ptr<ScriptedCall> make_call(ScriptedCall::Options options) {
    return engine_->make_operation<ScriptedCall>(std::move(options));
  }
  Work submit(ScriptedCall::Options options) {
    return engine_->submit(make_call(std::move(options)));
  }
  void run(ScriptedCall::Options options) {
    ScriptedCall call(std::move(options));
    engine_->run(call);
  }

  /// Waits, for 20 s at most, until `is_so()` while no call is driven.
  template <typename Condition>
  [[nodiscard]] bool comes_true(Condition is_so) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    bool is_true = false;
    while (!is_true && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      engine_->run_exclusively([&] { is_true = is_so(); });
    }
    return is_true;
  }

  /// Control messages that this rank has sent: "rank 1, call 2: text".
  [[nodiscard]] std::vector<std::string> sent_reports() const {
    std::vector<std::string> texts;
    for (const auto& [rank, message] : outbox_->reports) {
      texts.push_back("rank " + std::to_string(rank) + ", " + call_text(message.call) + ": " +
                      message.text);
    }
    return texts;
  }

  ScriptedTransport* transport_ = nullptr;
  std::shared_ptr<const ScriptedTransport::Outbox> outbox_;
  std::shared_ptr<Engine> engine_;
};

}  // namespace bluefog::testing
