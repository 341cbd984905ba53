// Mutexes of windows that other ranks ask for, and the requests of this rank that wait for answers.
#include "bluefog_cpp/one_sided/window_locks.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "bluefog_cpp/one_sided/window_requests.hpp"

namespace bluefog {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Kind = WindowMessage::Kind;

constexpr std::uint32_t kWindow = 7;

class Mutex final : public WindowTarget {
 public:
  void store(int, const WindowMessage&, std::span<const std::byte>) override {}
  std::span<const std::byte> load(int, double&, std::vector<std::byte>&) override { return {}; }
  void set_stamp(int /*source*/, std::int64_t /*stamp*/) override {}
  bool try_lock(int source) override {
    if (owner >= 0) {
      return false;
    }
    owner = source;
    return true;
  }
  [[nodiscard]] int holder() const override { return owner; }
  void unlock(int source) override {
    if (owner == source) {
      owner = -1;
    }
  }

  int owner = -1;
};

class WindowLocksOfPeers : public ::testing::Test {
 protected:
  WindowLocksOfPeers() { targets_[kWindow] = mutex_; }

  void ask(int peer, std::uint64_t ticket) {
    locks_.ask(peer, {.kind = Kind::Lock, .window = kWindow, .ticket = ticket});
  }
  // What was answered since the last look: "peer ticket kind", and a holder.
  std::vector<std::string> answers() { return std::exchange(answers_, {}); }

  std::shared_ptr<Mutex> mutex_ = std::make_shared<Mutex>();
  WindowLocks::Targets targets_;
  std::vector<std::string> answers_;
  WindowLocks locks_{
      targets_, [this](int peer, const WindowMessage& answer) {
        EXPECT_EQ(answer.window, kWindow);
        const std::string kind = answer.kind == Kind::Done   ? "has it"
                                 : answer.kind == Kind::Gone ? "gone"
                                                             : "waits for ";
        answers_.push_back(std::to_string(peer) + "/" + std::to_string(answer.ticket) + " " + kind +
                           (answer.kind == Kind::Held ? std::to_string(answer.holder) : ""));
      }};
};

TEST_F(WindowLocksOfPeers, AreGivenInTurnAndEachHolderIsToldOnce) {
  ask(1, 10);
  ask(2, 20);
  EXPECT_FALSE(locks_.serve());
  EXPECT_THAT(answers(), ElementsAre("1/10 has it", "2/20 waits for 1"));
  locks_.serve();
  EXPECT_THAT(answers(), IsEmpty());
  locks_.unlock(1, 10);
  EXPECT_EQ(mutex_->owner, -1);
  mutex_->owner = 5;  // a rank of this host came first
  locks_.serve();
  EXPECT_THAT(answers(), ElementsAre("2/20 waits for 5"));
  mutex_->owner = -1;
  locks_.serve();
  EXPECT_THAT(answers(), ElementsAre("2/20 has it"));
  EXPECT_FALSE(locks_.has_waiting());
  EXPECT_TRUE(locks_.holds(kWindow));
}

TEST_F(WindowLocksOfPeers, AreNotWaitedForAfterTheirRequestIsOver) {
  mutex_->owner = 0;
  ask(1, 10);
  locks_.unlock(2, 10);  // another rank's request with that number
  EXPECT_TRUE(locks_.has_waiting());
  locks_.unlock(1, 10);
  EXPECT_FALSE(locks_.has_waiting());
}

TEST_F(WindowLocksOfPeers, AreReleasedWhereAPeerIsGone) {
  ask(1, 10);
  ask(1, 11);
  ask(2, 20);
  locks_.serve();
  answers();
  locks_.drop(1);
  EXPECT_EQ(mutex_->owner, -1);
  locks_.serve();
  EXPECT_THAT(answers(), ElementsAre("2/20 has it"));
}

TEST_F(WindowLocksOfPeers, AreReleasedWhereTheirWindowGoes) {
  ask(1, 10);
  locks_.serve();
  ask(2, 20);
  answers();
  targets_.clear();
  locks_.refuse(kWindow);
  EXPECT_THAT(answers(), ElementsAre("2/20 gone"));
  EXPECT_TRUE(locks_.holds(kWindow)) << "the thread that took it releases it";
  EXPECT_TRUE(locks_.serve());
  EXPECT_EQ(mutex_->owner, -1);
  EXPECT_FALSE(locks_.holds(kWindow));
}

TEST(WindowRequestsOfThisRank, AreAnsweredByTheirNumbers) {
  WindowRequests requests;
  std::array<std::byte, 8> memory{};
  WindowRequests::Request first{.peer = 1, .room = memory};
  WindowRequests::Request second{.peer = 2};
  requests.open(first);
  requests.open(second);
  EXPECT_NE(first.ticket, second.ticket);
  EXPECT_EQ(requests.room_for({.kind = Kind::Done, .ticket = first.ticket, .bytes = 8}).data(),
            memory.data());
  EXPECT_TRUE(requests.room_for({.kind = Kind::Done, .ticket = first.ticket, .bytes = 4}).empty());
  EXPECT_TRUE(requests.room_for({.kind = Kind::Put, .ticket = first.ticket, .bytes = 8}).empty());
  EXPECT_FALSE(requests.take({.kind = Kind::Held, .holder = 4, .ticket = second.ticket}));
  EXPECT_EQ(second.holder, 4);
  EXPECT_TRUE(requests.take({.kind = Kind::Done, .ticket = first.ticket}));
  requests.fail(1, "late");
  requests.fail(2, "its process has ended");
  EXPECT_EQ(first.answer->kind, Kind::Done);
  EXPECT_EQ(second.answer->kind, Kind::Failed);
  EXPECT_STREQ(second.answer->text.data(), "its process has ended");
  requests.close(first);
  EXPECT_FALSE(requests.take({.kind = Kind::Done, .ticket = first.ticket})) << "nobody waits";
  requests.close(second);
  EXPECT_TRUE(requests.empty());
}

}  // namespace
}  // namespace bluefog
