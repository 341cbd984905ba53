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
#include <csignal>
#include <functional>
#include <string>
#include <vector>

#include "bluefog_cpp/base/system_limits.hpp"
#include "bluefog_cpp/error.hpp"
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
