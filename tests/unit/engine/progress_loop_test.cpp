#include "bluefog_cpp/engine/progress/progress_loop.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <exception>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bluefog_cpp/engine/engine.hpp"
#include "bluefog_cpp/error.hpp"
#include "tests/unit/engine/scripted_call.hpp"
#include "tests/unit/engine/scripted_transport.hpp"

namespace bluefog {
namespace {

using std::chrono::milliseconds;
using testing::ScriptedCall;
using testing::ScriptedTransport;

constexpr WaitPolicy kShortWaits{.spins = 0, .yields = 0, .timeout = milliseconds(100)};

/// The loop of rank 0 of two, with a progress thread that only notes that it was woken.
class ProgressLoopTest : public ::testing::Test {
 protected:
  /// The objects of an engine that the loop works with; the one that drives is the test.
  struct World {
    explicit World(std::vector<std::unique_ptr<Transport>> transports, Routes routes)
        : peers(0, 2, std::move(transports), std::move(routes)) {}

    Engine unused{EngineParts{}};  // asked by members of a family alone
    std::mutex mutex{};
    bool has_woken = false;
    Peers peers;
    CallQueue queue{};
    CallLedger ledger{peers, queue};
    Revocation revocation{peers, false};
    StepNews step_news{peers, revocation};
    CallRecords records{nullptr, nullptr, 0};
    StallReport stalls{peers, queue, unused, nullptr};
    HopelessCalls hopeless{peers, queue, unused, nullptr};
    Sleepers sleepers{nullptr};
    ProgressThread background{[this] { has_woken = true; }};
    CallDriver driver{{.peers = peers,
                       .queue = queue,
                       .ledger = ledger,
                       .revocation = revocation,
                       .step_news = step_news,
                       .records = records,
                       .stalls = stalls,
                       .hopeless = hopeless,
                       .sleepers = sleepers,
                       .background = background}};
    Logger log{};
    WaitPolicy policy{};
    ProgressLoop loop{driver, policy, log};
  };

  void SetUp() override {
    std::vector<std::unique_ptr<Transport>> transports;
    auto transport = std::make_unique<ScriptedTransport>();
    transport_ = transport.get();
    transports.push_back(std::move(transport));
    world_ = std::make_unique<World>(std::move(transports), Routes{nullptr, transport_});
    lock_ = std::unique_lock(world_->mutex);
  }

  void TearDown() override {
    world_->background.stop();
    world_->background.join();
  }

  /// Starts a call that expects a message of rank 1.
  ScriptedCall& start() {
    auto call = std::make_shared<ScriptedCall>(ScriptedCall::Options{.sources = {1}});
    world_->driver.enqueue(*call, call);
    calls_.push_back(call);
    return *call;
  }
  void send(std::uint64_t call) {
    transport_->send_message(1,
                             {.id = CallId::make(call, 0),
                              .bytes = 4,
                              .weight = 1.0,
                              .envelope = ScriptedCall::envelope_of(4)},
                             testing::rising_bytes(4, 1));
  }
  void drive(Operation& operation, const WaitPolicy& policy = kShortWaits,
             Waiter::Clock::time_point end = Waiter::Clock::time_point::max()) {
    Waiter waiter(policy);
    world_->loop.drive(lock_, operation, waiter, end);
  }
  /// What drive leaves of a call that failed.
  static std::string error_of(const Operation& operation) {
    try {
      std::rethrow_exception(CallState::of(operation).error);
    } catch (const std::exception& error) {
      return error.what();
    }
  }
  /// Whether the progress thread was woken; asked at the end of a test.
  [[nodiscard]] bool has_woken() {
    world_->background.stop();
    world_->background.join();
    return world_->has_woken;
  }

  ScriptedTransport* transport_ = nullptr;
  std::unique_ptr<World> world_;
  std::unique_lock<std::mutex> lock_;
  std::vector<std::shared_ptr<ScriptedCall>> calls_;
};

TEST_F(ProgressLoopTest, DrivesUntilTheCallIsDoneAndWakesNobody) {
  ScriptedCall& call = start();
  send(1);
  drive(call);
  EXPECT_EQ(CallState::of(call).phase.load(), CallState::Phase::Complete);
  EXPECT_TRUE(world_->queue.empty());
  EXPECT_FALSE(has_woken());
}

TEST_F(ProgressLoopTest, ACallThatIsLeftEarlyGoesOnInTheBackground) {
  ScriptedCall& call = start();
  drive(call, kShortWaits, Waiter::Clock::now());
  EXPECT_FALSE(CallState::of(call).is_done());
  EXPECT_TRUE(lock_.owns_lock());
  EXPECT_TRUE(has_woken());
}

TEST_F(ProgressLoopTest, ACallWhoseCallerIsPresentWakesNobody) {
  EXPECT_FALSE(world_->loop.count_present(1));
  start();
  world_->loop.note_start();
  EXPECT_FALSE(has_woken());
}

TEST_F(ProgressLoopTest, WhatAnAbsentCallerHasLeftGoesOn) {
  EXPECT_FALSE(world_->loop.count_present(1));
  EXPECT_FALSE(world_->loop.count_present(1));
  start();
  world_->loop.note_start();
  EXPECT_FALSE(world_->loop.count_present(-1));
  EXPECT_TRUE(world_->loop.count_present(-1));
  world_->loop.note_absence();
  EXPECT_TRUE(has_woken());
}

TEST_F(ProgressLoopTest, AWaitWithoutProgressEndsInAnAbandonment) {
  ScriptedCall& call = start();
  drive(call);
  EXPECT_THROW(std::rethrow_exception(CallState::of(call).error), TimeoutError);
  EXPECT_TRUE(world_->ledger.has_abandoned());
  const auto outbox = transport_->outbox();
  ASSERT_FALSE(outbox->reports.empty());  // it may have asked before
  EXPECT_EQ(outbox->reports.back().second.kind, ControlMessage::Kind::Abandoned);
}

TEST_F(ProgressLoopTest, AnInterruptLeavesTheWaitWithoutTheMutexAndWaitsForNobody) {
  ScriptedCall& call = start();
  bool had_mutex = true;
  world_->loop.interrupt_check().set([&] {
    std::unique_lock lock(world_->mutex, std::try_to_lock);
    had_mutex = !lock.owns_lock();
    if (lock) {
      world_->loop.await_drivers(lock);  // this thread is one of them
    }
    throw std::runtime_error("interrupted");
  });
  drive(call, {.spins = 0, .yields = 0, .timeout = milliseconds(0)});
  EXPECT_FALSE(had_mutex);
  EXPECT_EQ(error_of(call), "interrupted");
  EXPECT_FALSE(world_->ledger.has_abandoned());
}

TEST_F(ProgressLoopTest, TheProgressThreadDrivesUntilItIsStopped) {
  ScriptedCall& call = start();
  send(1);
  std::jthread stopper([&] {
    const auto deadline = Waiter::Clock::now() + std::chrono::seconds(20);
    bool is_done = false;
    while (!is_done && Waiter::Clock::now() < deadline) {
      const std::lock_guard lock(world_->mutex);
      is_done = CallState::of(call).is_done();
    }
    const std::lock_guard lock(world_->mutex);
    world_->background.stop();
  });
  world_->loop.drive_in_background(lock_);
  EXPECT_EQ(CallState::of(call).phase.load(), CallState::Phase::Complete);
}

}  // namespace
}  // namespace bluefog
