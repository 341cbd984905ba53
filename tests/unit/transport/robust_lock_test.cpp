#include "bluefog_cpp/transport/robust_lock.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <thread>

#include "bluefog_cpp/error.hpp"

namespace bluefog::shm {
namespace {

using Outcome = RobustLock::Outcome;
using std::chrono::milliseconds;

class RobustLockTest : public ::testing::Test {
 protected:
  void SetUp() override {
    memory_ = ::mmap(nullptr, sizeof(RobustLock), PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory_, MAP_FAILED);
    lock_ = new (memory_) RobustLock;
    lock_->initialize();
  }
  void TearDown() override { ::munmap(memory_, sizeof(RobustLock)); }

  void* memory_ = nullptr;
  RobustLock* lock_ = nullptr;
};

TEST_F(RobustLockTest, KnowsItsHolder) {
  EXPECT_EQ(lock_->holder(), -1);
  EXPECT_EQ(lock_->try_take(3), Outcome::Taken);
  EXPECT_EQ(lock_->holder(), 3);
  std::thread([this] { EXPECT_EQ(lock_->take(4, milliseconds(5)), Outcome::Busy); }).join();
  lock_->release();
  EXPECT_EQ(lock_->holder(), -1);
  std::thread([this] {
    EXPECT_EQ(lock_->take(4, milliseconds(5)), Outcome::Taken);
    lock_->release();
  }).join();
}

TEST_F(RobustLockTest, IsInheritedFromAProcessThatDied) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    (void)lock_->try_take(1);
    ::kill(::getpid(), SIGKILL);
  }
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_EQ(lock_->take(0, milliseconds(1000)), Outcome::Inherited);
  lock_->release();
  EXPECT_EQ(lock_->take(0, milliseconds(1000)), Outcome::Taken);
  lock_->release();
}

TEST_F(RobustLockTest, TakingItTwiceIsAnErrorNotAWait) {
  EXPECT_EQ(lock_->try_take(0), Outcome::Taken);
  EXPECT_THROW((void)lock_->take(0, milliseconds(1000)), StateError);
  lock_->release();
}

// Whoever takes it again at once would win against every waiter that has to be woken first.
TEST_F(RobustLockTest, AWaiterComesBeforeTheOneThatReleasedIt) {
  constexpr int kTurns = 50;
  const auto turns_given_way = [this] {
    int given_way = 0;
    for (int turn = 0; turn < kTurns; ++turn) {
      EXPECT_NE(lock_->take(0, milliseconds(10'000)), Outcome::Busy);
      std::thread waiter([this] {
        EXPECT_NE(lock_->take(1, milliseconds(10'000)), Outcome::Busy);
        lock_->release();
      });
      std::this_thread::sleep_for(milliseconds(5));
      lock_->release();
      if (lock_->try_take(0) == Outcome::Busy) {
        ++given_way;
      } else {
        lock_->release();
      }
      waiter.join();
    }
    return given_way;
  };
  // Turns are missed on a busy machine: a waiter without a processor does not renew its request.
  constexpr int kRounds = 20;
  int most = 0;
  for (int round = 0; round < kRounds && most < kTurns / 4; ++round) {
    most = std::max(most, turns_given_way());
  }
  EXPECT_GE(most, kTurns / 4);
}

TEST_F(RobustLockTest, APollIsGivenWayToAndStopsToBeWhenItAsksNoMore) {
  const auto poll = [this] {
    Outcome outcome{};
    std::thread([&] {
      outcome = lock_->poll(1);
      if (outcome != Outcome::Busy) {
        EXPECT_EQ(lock_->holder(), 1);
        lock_->release();
      }
    }).join();
    return outcome;
  };
  constexpr int kTurns = 50;
  int given_way = 0;
  for (int turn = 0; turn < kTurns; ++turn) {
    EXPECT_EQ(lock_->try_take(0), Outcome::Taken);
    EXPECT_EQ(poll(), Outcome::Busy);
    lock_->release();
    given_way += lock_->try_take(0) == Outcome::Busy ? 1 : 0;
    // Free again for others once the request is old.
    while (lock_->holder() != 0 && lock_->try_take(0) == Outcome::Busy) {
    }
    EXPECT_EQ(poll(), Outcome::Busy);
    lock_->release();
    EXPECT_EQ(poll(), Outcome::Taken);
    EXPECT_EQ(lock_->try_take(0), Outcome::Taken) << "the request is withdrawn";
    lock_->release();
  }
  EXPECT_GE(given_way, kTurns / 4);
}

}  // namespace
}  // namespace bluefog::shm
