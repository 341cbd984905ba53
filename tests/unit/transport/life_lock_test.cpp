#include "bluefog_cpp/transport/life_lock.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <new>
#include <thread>

#include "bluefog_cpp/transport/life_keeper.hpp"

namespace bluefog::shm {
namespace {

/// A lock that children of this process share with it.
class SharedLock {
 public:
  SharedLock() {
    void* const page = ::mmap(nullptr, sizeof(LifeLock), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    lock_ = new (page) LifeLock;
    lock_->initialize();
  }
  SharedLock(const SharedLock&) = delete;
  SharedLock& operator=(const SharedLock&) = delete;
  ~SharedLock() { ::munmap(lock_, sizeof(LifeLock)); }

  LifeLock* operator->() noexcept { return lock_; }
  LifeLock& operator*() noexcept { return *lock_; }

 private:
  LifeLock* lock_;
};

TEST(LifeLock, IsOverWhenItIsLetGo) {
  SharedLock lock;
  EXPECT_FALSE(lock->is_over());  // nobody has shown life yet
  LifeKeeper keeper;
  keeper.hold(*lock);
  EXPECT_FALSE(lock->is_over());
  EXPECT_FALSE(lock->is_over());
  keeper.let_go(*lock);
  EXPECT_TRUE(lock->is_over());
  EXPECT_TRUE(lock->is_over());
}

TEST(LifeLock, OutlivesTheThreadThatAskedForIt) {
  SharedLock first;
  SharedLock second;
  LifeKeeper keeper;
  std::thread([&] {
    keeper.hold(*first);
    keeper.hold(*second);
  }).join();
  EXPECT_FALSE(first->is_over());
  keeper.let_go(*first);
  EXPECT_TRUE(first->is_over());
  EXPECT_FALSE(second->is_over());
  keeper.let_go(*second);
}

#if !defined(__SANITIZE_THREAD__)  // which follows no fork
TEST(LifeLock, IsOverWhenTheProcessIsKilledThoughAChildOfItLives) {
  SharedLock lock;
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe(pipe.data()), 0);
  const pid_t process = ::fork();
  if (process == 0) {
    LifeKeeper keeper;
    keeper.hold(*lock);
    const pid_t child = ::fork();
    if (child != 0) {
      static_cast<void>(::write(pipe[1], &child, sizeof child) == sizeof child);
    }
    while (true) {
      ::pause();
    }
  }
  pid_t child = 0;
  ASSERT_EQ(::read(pipe[0], &child, sizeof child), static_cast<ssize_t>(sizeof child));
  EXPECT_FALSE(lock->is_over());
  ::kill(process, SIGKILL);
  EXPECT_EQ(::waitpid(process, nullptr, 0), process);
  for (int look = 0; look < 5; ++look) {
    EXPECT_TRUE(lock->is_over());
  }
  const pid_t other = ::fork();
  if (other == 0) {
    ::_exit(lock->is_over() ? 0 : 1);
  }
  int status = 1;
  EXPECT_EQ(::waitpid(other, &status, 0), other);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(::kill(child, SIGKILL), 0);  // it was there until now
  ::close(pipe[0]);
  ::close(pipe[1]);
}
#endif

}  // namespace
}  // namespace bluefog::shm
