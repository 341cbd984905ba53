// Servers of ranks that are threads: mutexes asked for by several threads, slow owners, and peers
// that have stopped.
#include "bluefog_cpp/one_sided/window_server.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <latch>
#include <memory>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "bluefog_cpp/thread_bootstrap.hpp"
#include "bluefog_cpp/transport/network.hpp"

namespace bluefog {
namespace {

using Kind = WindowMessage::Kind;
using std::chrono::milliseconds;

constexpr std::uint32_t kWindow = 1;

/// A mutex that one rank at a time holds.
class Mutex final : public WindowTarget {
 public:
  void store(int, const WindowMessage&, std::span<const std::byte>) override {}
  std::span<const std::byte> load(int, double&, std::vector<std::byte>&) override {
    std::this_thread::sleep_for(milliseconds(300));
    return {};
  }
  void set_stamp(int /*source*/, std::int64_t /*stamp*/) override {}
  bool try_lock(int source) override {
    int nobody = -1;
    return holder_.compare_exchange_strong(nobody, source);
  }
  [[nodiscard]] int holder() const override { return holder_; }
  void unlock(int source) override { holder_.compare_exchange_strong(source, -1); }

 private:
  std::atomic<int> holder_{-1};
};

/// A value to get, after a pause.
class Value final : public WindowTarget {
 public:
  Value(std::vector<std::byte>& bytes, std::function<void()> pause)
      : bytes_(bytes), pause_(std::move(pause)) {}
  void store(int, const WindowMessage&, std::span<const std::byte>) override {}
  std::span<const std::byte> load(int, double&, std::vector<std::byte>&) override {
    pause_();
    return bytes_;
  }
  void set_stamp(int /*source*/, std::int64_t /*stamp*/) override {}
  bool try_lock(int) override { return true; }
  [[nodiscard]] int holder() const override { return -1; }
  void unlock(int) override {}

 private:
  std::vector<std::byte>& bytes_;
  std::function<void()> pause_;
};

Deadline soon() { return Deadline::after(std::chrono::seconds(20)); }

WindowServer::Asker asker_until(Deadline deadline) {
  return {.deadline = deadline, .where = [] { return "a test"; }, .waiting = [](int) {}};
}

std::vector<std::unique_ptr<WindowServer>> make_servers(int size) {
  std::vector<std::unique_ptr<WindowServer>> servers(static_cast<std::size_t>(size));
  std::vector<std::jthread> threads;
  int rank = 0;
  for (const auto& bootstrap : make_thread_bootstraps(size)) {
    threads.emplace_back([&servers, bootstrap, rank, size] {
      servers[static_cast<std::size_t>(rank)] = std::make_unique<WindowServer>(
          make_network(*bootstrap, Settings{}, soon()), rank, size, milliseconds(1), [] {});
    });
    ++rank;
  }
  threads.clear();
  return servers;
}

/// The server of rank 0, which asks, and that of rank 1, which owns the mutex.
class WindowServers : public ::testing::Test {
 protected:
  void SetUp() override { owner().add(kWindow, mutex_); }

  WindowServer& asker() { return *servers_[0]; }
  WindowServer& owner() { return *servers_[1]; }
  std::uint64_t lock(Deadline deadline) {
    return asker()
        .ask(1, {.kind = Kind::Lock, .window = kWindow}, {}, {}, asker_until(deadline))
        .ticket;
  }
  void unlock(std::uint64_t ticket) {
    asker().notify(1, {.kind = Kind::Unlock, .window = kWindow, .ticket = ticket});
  }

  std::shared_ptr<Mutex> mutex_ = std::make_shared<Mutex>();
  std::vector<std::unique_ptr<WindowServer>> servers_ = make_servers(2);
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
  auto impatient = asker_until(Deadline::after(milliseconds(200)));
  impatient.waiting = [&](int holder) { seen = holder; };
  EXPECT_THROW(asker().ask(1, {.kind = Kind::Lock, .window = kWindow}, {}, {}, impatient),
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
  EXPECT_THROW(lock(soon()), WindowGoneError);
}

TEST_F(WindowServers, AWaitForASlowOwnerIsReported) {
  int reports = 0;
  auto observer = asker_until(soon());
  observer.waiting = [&](int holder) {
    EXPECT_EQ(holder, -1);
    ++reports;
  };
  asker().ask(1, {.kind = Kind::Get, .window = kWindow}, {}, {}, observer);
  EXPECT_GE(reports, 1);
}

// A request of rank 2 keeps the server of rank 0 busy, so that it takes nothing meanwhile.
class StoppedRank : public ::testing::Test {
 protected:
  static constexpr std::size_t kBytes = std::size_t{8} << 20U;  // more than is on its way at once
  static constexpr std::uint32_t kSlowWindow = 2;

  void SetUp() override {
    server(1).add(kWindow, std::make_shared<Value>(value_, [&] {
                    is_asked_.count_down();
                    is_stopped_.wait();
                  }));
    server(0).add(kSlowWindow, std::make_shared<Value>(nothing_, [&] {
                    is_stopped_.count_down();
                    goes_on_.wait();
                  }));
  }

  WindowServer& server(std::size_t rank) { return *servers_[rank]; }
  void stop_rank_0() {
    (void)server(2).ask(0, {.kind = Kind::Get, .window = kSlowWindow}, {}, {}, asker_until(soon()));
  }

  std::vector<std::byte> value_ = std::vector<std::byte>(kBytes, std::byte{1});
  std::vector<std::byte> nothing_;
  std::latch is_asked_{1};
  std::latch is_stopped_{1};
  std::latch goes_on_{1};
  std::vector<std::unique_ptr<WindowServer>> servers_ = make_servers(3);
};

TEST_F(StoppedRank, HoldsUpNoOwnerAndGetsWhatItHasAskedFor) {
  std::vector<std::byte> room(kBytes);
  {
    std::jthread asking([&] {
      (void)server(0).ask(1, {.kind = Kind::Get, .window = kWindow}, {}, room, asker_until(soon()));
    });
    is_asked_.wait();  // rank 0 sends nothing once it has stopped
    std::jthread stopping([&] { stop_rank_0(); });
    is_stopped_.wait();
    std::this_thread::sleep_for(milliseconds(100));  // the owner sends until there is no room
    server(1).remove(kWindow);
    std::ranges::fill(value_, std::byte{2});
    goes_on_.count_down();
  }
  EXPECT_EQ(room, std::vector<std::byte>(kBytes, std::byte{1}));
}

// A put that has begun goes on from a copy, and the stream stays whole.
TEST_F(StoppedRank, HoldsUpNoCallThatGivesUp) {
  server(0).add(kWindow, std::make_shared<Value>(nothing_, [] {}));
  const std::jthread stopping([&] { stop_rank_0(); });
  is_stopped_.wait();
  const auto put = [&](std::vector<std::byte> payload, Deadline deadline) {
    (void)server(1).ask(0, {.kind = Kind::Put, .window = kWindow}, payload, {},
                        asker_until(deadline));
  };
  EXPECT_THROW(put(value_, Deadline::after(milliseconds(200))), TimeoutError);
  goes_on_.count_down();
  put(value_, soon());
}

}  // namespace
}  // namespace bluefog
