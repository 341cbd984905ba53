// Strangers among those who connect to the rank that hands its host's memory out.
#include "bluefog_cpp/transport/shm/arena_handout.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <functional>
#include <future>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "tests/support/error_of.hpp"

namespace bluefog::shm {
namespace {

using bluefog::testing::error_of;
using ::testing::HasSubstr;

constexpr std::chrono::seconds kSoon{30};

Deadline soon() { return Deadline::after(kSoon); }

/// A child of this process that does `work`, says so, and stays until this object goes.
class Child {
 public:
  explicit Child(const std::function<void()>& work) {
    std::array<int, 2> said{};
    EXPECT_EQ(::pipe(said.data()), 0);
    id_ = ::fork();
    if (id_ == 0) {
      work();
      (void)!::write(said[1], "x", 1);
      ::pause();
      ::_exit(0);
    }
    ::close(said[1]);
    char word = 0;
    EXPECT_EQ(::read(said[0], &word, 1), 1) << "the child has not done its work";
    ::close(said[0]);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    ::kill(id_, SIGKILL);
    ::waitpid(id_, nullptr, 0);
  }

 private:
  pid_t id_ = -1;
};

/// A connection that has sent these bytes; ends the process where that fails.
UniqueFd connect_and_say(const std::string& name, std::span<const std::byte> bytes) {
  UniqueFd socket = make_socket();
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) !=
          static_cast<ssize_t>(bytes.size())) {
    ::_exit(1);
  }
  return socket;
}

/// The rank 0 that gives, and rank 1 that takes.
class ArenaHandout : public ::testing::Test {
 protected:
  [[nodiscard]] std::span<const std::byte> greeting_bytes() const {
    return std::as_bytes(std::span(&greeting_, 1));
  }

  /// Both sides in this process, with the strangers that are there already.
  void hand_out() {
    auto given = std::async(std::launch::async, [this] { giver_.give(*arena_, soon()); });
    ArenaTaker taker(1);
    const auto taken = taker.take(giver_.name(), giver_.token(), soon());
    given.get();
    arena_->map(0, 4096).data()[4095] = std::byte{7};
    EXPECT_EQ(taken->map(0, 4096).data()[4095], std::byte{7});
  }

  std::shared_ptr<HostArena> arena_ = HostArena::create();
  ArenaGiver giver_{{0, 1}};
  Greeting greeting_{.rank = 1, .token = giver_.token()};
};

TEST_F(ArenaHandout, ReachesARank) { hand_out(); }

TEST_F(ArenaHandout, DropsProcessesOfAnotherUser) {
  if (::geteuid() != 0) {
    GTEST_SKIP() << "needs root, to become another user";
  }
  constexpr uid_t kNobody = 65534;
  const Child stranger([this] {
    if (::setgid(kNobody) != 0 || ::setuid(kNobody) != 0) {
      ::_exit(1);
    }
    // Everybody sees the name.
    std::ifstream file("/proc/net/unix");
    const std::string names{std::istreambuf_iterator<char>(file), {}};
    if (names.find("@" + giver_.name()) == std::string::npos) {
      ::_exit(1);
    }
    // One says nothing, one half a greeting, one knows the token.
    static std::vector<UniqueFd> kept;
    kept.push_back(connect_and_say(giver_.name(), {}));
    kept.push_back(connect_and_say(giver_.name(), greeting_bytes().first(5)));
    kept.push_back(connect_and_say(giver_.name(), greeting_bytes()));
  });
  hand_out();
}

TEST_F(ArenaHandout, DropsWhoeverDoesNotKnowTheToken) {
  greeting_.token[3] ^= std::byte{1};
  const UniqueFd stranger = connect_and_say(giver_.name(), greeting_bytes());
  hand_out();
  char word = 0;
  EXPECT_EQ(::recv(stranger.get(), &word, 1, 0), 0) << "the stranger got an answer";
}

TEST_F(ArenaHandout, HalfAGreetingHoldsNobodyUp) {
  const UniqueFd silent = connect_and_say(giver_.name(), {});
  const UniqueFd half = connect_and_say(giver_.name(), greeting_bytes().first(5));
  const UniqueFd gone = connect_and_say(giver_.name(), greeting_bytes().first(5));
  ::shutdown(gone.get(), SHUT_RDWR);
  hand_out();
}

TEST_F(ArenaHandout, NamesRanksThatDoNotCome) {
  const std::string text = error_of<TimeoutError>(
      [this] { giver_.give(*arena_, Deadline::after(std::chrono::milliseconds(1))); });
  EXPECT_THAT(text, HasSubstr("ranks 1 have not come to rank 0"));
}

TEST_F(ArenaHandout, ATakerHearsThatNobodyListens) {
  ArenaTaker taker(1);
  EXPECT_THAT(
      error_of<TransportError>([&] { (void)taker.take("bluefog-nobody", giver_.token(), soon()); }),
      HasSubstr("connect failed"));
}

TEST_F(ArenaHandout, WhatIsNoArenaIsNotTaken) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const UniqueFd other(ends[1]);
  EXPECT_THAT(error_of<TransportError>([&] { (void)HostArena::adopt(UniqueFd(ends[0])); }),
              HasSubstr("expected memory that is sealed against shrinking"));
}

}  // namespace
}  // namespace bluefog::shm
