// Servers of two ranks that are threads: mutexes asked for by several threads,
// and slow owners.
#include "bluefog_cpp/transport/one_sided/window_server.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "bluefog_cpp/base/error.hpp"
#include "bluefog_cpp/transport/network.hpp"
#include "bluefog_cpp/transport/one_sided/window_gone.hpp"
#include "bluefog_cpp/transport/thread_bootstrap.hpp"

namespace bluefog {
namespace {

using Kind = WindowMessage::Kind;
using std::chrono::milliseconds;

constexpr std::uint32_t kWindow = 1;

/// A mutex that one rank at a time holds.
class Mutex final : public WindowTarget {
 public:
  void store(int, const WindowMessage&, std::span<const std::byte>) override {}
  std::span<const std::byte> load(int, double&) override {
    std::this_thread::sleep_for(milliseconds(300));
    return {};
  }
  bool try_lock(int source) override {
    int nobody = -1;
    return holder_.compare_exchange_strong(nobody, source);
  }
  [[nodiscard]] int holder() const override { return holder_; }
  void unlock(int source) override { holder_.compare_exchange_strong(source, -1); }

 private:
  std::atomic<int> holder_{-1};
};

/// The server of rank 0, which asks, and that of rank 1, which owns the mutex.
class WindowServers : public ::testing::Test {
 protected:
  void SetUp() override {
    auto bootstraps = make_thread_bootstraps(2);
    std::vector<std::jthread> threads;
    servers_.resize(2);
    for (int rank = 0; rank < 2; ++rank) {
      threads.emplace_back([this, rank, own = bootstraps[static_cast<std::size_t>(rank)]] {
        servers_[static_cast<std::size_t>(rank)] = std::make_unique<WindowServer>(
            make_network(*own, Settings{}, soon()), rank, 2, milliseconds(1), [] {});
      });
    }
    threads.clear();
    owner().add(kWindow, mutex_);
  }

  static Deadline soon() { return Deadline::after(std::chrono::seconds(20)); }
  WindowServer& asker() { return *servers_[0]; }
  WindowServer& owner() { return *servers_[1]; }
  std::uint64_t lock(Deadline deadline) {
    return asker().ask(1, {.kind = Kind::Lock, .window = kWindow}, {}, {}, deadline).ticket;
  }
  void unlock(std::uint64_t ticket) {
    asker().tell(1, {.kind = Kind::Unlock, .window = kWindow, .ticket = ticket});
  }

  std::shared_ptr<Mutex> mutex_ = std::make_shared<Mutex>();
  std::vector<std::unique_ptr<WindowServer>> servers_;
};

TEST_F(WindowServers, ThreadsOfOneRankTakeAMutexInTurn) {
  std::atomic<int> inside{0};
  std::vector<std::jthread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      for (int round = 0; round < 30; ++round) {
        const std::uint64_t ticket = lock(soon());
        EXPECT_EQ(++inside, 1);
        --inside;
        unlock(ticket);
      }
    });
  }
}

TEST_F(WindowServers, WhoeverGaveUpDoesNotGetTheMutex) {
  EXPECT_TRUE(mutex_->try_lock(1));
  int seen = -1;
  EXPECT_THROW(asker().ask(1, {.kind = Kind::Lock, .window = kWindow}, {}, {},
                           Deadline::after(milliseconds(200)), [&](int holder) { seen = holder; }),
               TimeoutError);
  EXPECT_EQ(seen, 1);
  mutex_->unlock(1);
  unlock(lock(soon()));
  while (mutex_->holder() >= 0) {
    std::this_thread::yield();
  }
}

TEST_F(WindowServers, WhoWaitsForTheMutexOfAWindowThatGoesIsTold) {
  EXPECT_TRUE(mutex_->try_lock(1));
  std::jthread other([&] {
    std::this_thread::sleep_for(milliseconds(200));
    owner().remove(kWindow);
  });
  EXPECT_THROW(lock(soon()), WindowGone);
}

TEST_F(WindowServers, AWaitForASlowOwnerIsReported) {
  int reports = 0;
  asker().ask(1, {.kind = Kind::Get, .window = kWindow}, {}, {}, soon(), [&](int holder) {
    EXPECT_EQ(holder, -1);
    ++reports;
  });
  EXPECT_GE(reports, 1);
}

}  // namespace
}  // namespace bluefog
