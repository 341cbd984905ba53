#include "bluefog_cpp/transport/shm/host_arena.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "bluefog_cpp/base/system_limits.hpp"
#include "bluefog_cpp/error.hpp"
#include "bluefog_cpp/transport/shm/silence_watch.hpp"
#include "tests/support/error_of.hpp"

namespace bluefog::shm {
namespace {

using bluefog::testing::error_of;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// Whether `holds` is true in a child of this process, whose limits are its own.
bool holds_in_child(const std::function<bool()>& holds) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::_exit(holds() ? 0 : 1);
  }
  int status = -1;
  return ::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool set_limit(__rlimit_resource_t what, rlim_t soft, rlim_t hard) {
  const rlimit limit{.rlim_cur = soft, .rlim_max = hard};
  return ::setrlimit(what, &limit) == 0;
}

/// Opens descriptors until the limit is reached.
std::vector<UniqueFd> use_all_descriptors() {
  std::vector<UniqueFd> all;
  while (all.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC))) {
  }
  all.pop_back();
  return all;
}

TEST(HostArena, CannotBeMadeSmaller) {
  const auto arena = HostArena::create();
  const std::uint64_t place = arena->take(10'000);
  arena->back(place, 10'000);
  EXPECT_EQ(::ftruncate(arena->fd(), 0), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(::fcntl(arena->fd(), F_ADD_SEALS, F_SEAL_WRITE), -1) << "further seals are refused";
  arena->map(place, 10'000).data()[9'999] = std::byte{1};
}

TEST(HostArena, PlacesAreTakenOnceAndZeroed) {
  const auto arena = HostArena::create();
  const std::uint64_t first = arena->take(1);
  const std::uint64_t second = arena->take(5'000);
  EXPECT_GT(second, first + 4096) << "blocks of two takers adjoin";
  EXPECT_GT(arena->take(1), second + 8192);
  arena->back(second, 5'000);
  const Mapping mapping = arena->map(second, 5'000);
  EXPECT_EQ(mapping.data()[4'999], std::byte{0});
  mapping.data()[4'999] = std::byte{1};
  arena->back(second, 5'000);
  EXPECT_EQ(mapping.data()[4'999], std::byte{1}) << "memory that is there stays";
  arena->give_back(second, 5'000);
  EXPECT_EQ(mapping.data()[4'999], std::byte{0});
}

TEST(HostArena, ShowsSignsOfLifeWhereTheyAreWanted) {
  const auto arena = HostArena::create();
  arena->mark_alive(2);
  EXPECT_EQ(arena->signs_of_life(2), 0U);
  const auto other = HostArena::create();
  other->mark_alive(1, std::chrono::milliseconds(4));
  while (other->signs_of_life(1) < 4) {
    std::this_thread::yield();
  }
  EXPECT_EQ(other->signs_of_life(0), 0U);
}

TEST(SilenceWatch, CountsTheTimeBetweenLooks) {
  using std::chrono::milliseconds;
  constexpr milliseconds kLimit(400);
  SilenceWatch watch;
  SilenceWatch::Clock::time_point now{};
  const auto look = [&](std::uint64_t signs, milliseconds later) {
    return watch.is_silent(signs, kLimit, now += later);
  };
  EXPECT_FALSE(look(1, milliseconds(0)));
  for (int i = 0; i < 7; ++i) {
    EXPECT_FALSE(look(1, milliseconds(50)));
  }
  EXPECT_TRUE(look(1, milliseconds(50)));
  EXPECT_FALSE(look(2, milliseconds(50))) << "it lives";
  // Whoever was stopped with the other looks some times before it judges.
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(look(2, milliseconds(10'000)));
  }
  EXPECT_TRUE(look(2, milliseconds(10'000)));
  for (int i = 0; i < 10; ++i) {
    EXPECT_FALSE(look(0, milliseconds(10'000))) << "it shows none";
  }
}

#if !defined(__SANITIZE_THREAD__)  // which does not know forks of programs with threads
TEST(HostArena, KnowsWhoLivesWhateverItsChildrenDo) {
  const auto arena = HostArena::create();
  arena->mark_alive(3);
  EXPECT_FALSE(arena->is_alive(3)) << "this process's own mark";
  std::array<int, 2> said{};
  ASSERT_EQ(::pipe(said.data()), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    arena->mark_alive(5);
    const pid_t grandchild = ::fork();  // outlives its parent, with the descriptor
    if (grandchild != 0) {
      (void)!::write(said[1], &grandchild, sizeof(grandchild));
    }
    ::pause();
    ::_exit(0);
  }
  pid_t grandchild = 0;
  ASSERT_EQ(::read(said[0], &grandchild, sizeof(grandchild)),
            static_cast<ssize_t>(sizeof(grandchild)));
  EXPECT_TRUE(arena->is_alive(5));
  EXPECT_FALSE(arena->is_alive(4));
  EXPECT_TRUE(holds_in_child([&] { return arena->is_alive(3); })) << "seen from elsewhere";
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_FALSE(arena->is_alive(5));
  EXPECT_EQ(::kill(grandchild, 0), 0);
  ::kill(grandchild, SIGKILL);
  ::close(said[0]);
  ::close(said[1]);
}
#endif

TEST(HostArena, TheLimitOfDescriptorsIsRaisedAndNamed) {
  EXPECT_TRUE(holds_in_child([] {
    set_limit(RLIMIT_NOFILE, 64, 128);
    const auto all = use_all_descriptors();
    const std::string text = error_of<TransportError>([] { (void)HostArena::create(); });
    raise_descriptor_limit();
    const bool is_raised = HostArena::create() != nullptr;
    return is_raised && text.find("64 descriptors (RLIMIT_NOFILE, ulimit -n)") != std::string::npos;
  }));
}

// The system would end a process that touches it.
TEST(HostArena, MoreThanTheMachineHasIsRefused) {
  const auto arena = HostArena::create();
  const std::uint64_t bytes = available_memory() + (std::uint64_t{1} << 32U);
  EXPECT_NE(error_of<TransportError>([&] {
              arena->back(arena->take(bytes), bytes);
            }).find("of this machine's memory"),
            std::string::npos);
  arena->back(arena->take(1 << 20), 1 << 20);
}

TEST(HostArena, LimitsOfFilesAndAddressesAreNamed) {
  EXPECT_TRUE(holds_in_child([] {
    const auto arena = HostArena::create();
    set_limit(RLIMIT_FSIZE, 1 << 20, 1 << 20);
    return error_of<TransportError>([&] {
             arena->back(arena->take(2 << 20), 2 << 20);
           }).find("1048576 bytes (RLIMIT_FSIZE, ulimit -f)") != std::string::npos;
  }));
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_TRUE(holds_in_child([] {
    const auto arena = HostArena::create();
    constexpr rlim_t kLimit = rlim_t{1} << 30U;
    set_limit(RLIMIT_AS, kLimit, kLimit);
    return error_of<TransportError>([&] {
             (void)arena->map(0, kLimit);
           }).find("1073741824 bytes of addresses (RLIMIT_AS, ulimit -v)") != std::string::npos;
  }));
#endif
}

}  // namespace
}  // namespace bluefog::shm
