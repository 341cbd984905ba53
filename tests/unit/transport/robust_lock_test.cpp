#include "bluefog_cpp/transport/shm/robust_lock.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <new>
#include <thread>

#include "bluefog_cpp/base/error.hpp"

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

}  // namespace
}  // namespace bluefog::shm
