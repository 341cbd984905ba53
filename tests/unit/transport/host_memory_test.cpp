#include "bluefog_cpp/transport/host_memory.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "bluefog_cpp/thread_bootstrap.hpp"

namespace bluefog::shm {
namespace {

/// The memory of two ranks, which are threads, of a host in an arena.
std::vector<std::shared_ptr<HostMemory>> memory_of_two(std::shared_ptr<HostArena>& arena) {
  const auto bootstraps = make_thread_bootstraps(2);
  std::vector<std::shared_ptr<HostMemory>> memory(2);
  const auto connect = [&](std::size_t rank, std::shared_ptr<HostArena>& own_arena) {
    memory[rank] = HostMemory::of(
        form_group(*bootstraps[rank], {"host", "host"}, own_arena, {}, Deadline::never()).group);
  };
  std::thread other([&] {
    std::shared_ptr<HostArena> same;
    connect(1, same);
  });
  connect(0, arena);
  other.join();
  return memory;
}

TEST(HostMemory, GivesBlocksOutAgain) {
  const auto bootstraps = make_thread_bootstraps(1);
  const auto memory =
      HostMemory::connect(*bootstraps.front(), {std::string("host")}, nullptr, Deadline::never());
  EXPECT_TRUE(memory->reaches(0));
  EXPECT_FALSE(memory->reaches(1));
  const std::uint64_t a = memory->allocate(10'000);
  const std::uint64_t b = memory->allocate(1);
  const std::uint64_t c = memory->allocate(5000);
  EXPECT_EQ(b - a, 12'288U);  // whole pages
  memory->at(0, c, 5000)[4999] = std::byte{1};
  memory->release(a);
  EXPECT_EQ(memory->allocate(4096), a);
  EXPECT_EQ(memory->allocate(8192), a + 4096);
  memory->release(a);
  memory->release(b);
  memory->release(a + 4096);  // joins with both neighbours
  EXPECT_EQ(memory->allocate(16'384), a);
  memory->release(12'345);  // never given out: ignored
  EXPECT_GT(memory->allocate(1), c);
}

TEST(HostMemory, KeepsWhatWasRetired) {
  const auto bootstraps = make_thread_bootstraps(1);
  const std::shared_ptr<HostMemory> memory =
      HostMemory::connect(*bootstraps.front(), {std::string("host")}, nullptr, Deadline::never());
  auto first = HostMemory::allocate_zeros(memory, 10'000);
  const auto place = memory->place_of(first.get(), 10'000);
  ASSERT_TRUE(place);
  EXPECT_EQ(memory->place_of(first.get() + 9'999, 1), *place + 9'999);
  first.get()[0] = std::byte{1};
  first.reset();
  first = HostMemory::allocate_zeros(memory, 10'000);
  EXPECT_EQ(memory->place_of(first.get(), 1), place) << "what was freed is given out again";
  EXPECT_EQ(first.get()[0], std::byte{0});
  memory->retire(*place + 5'000);
  first.reset();
  EXPECT_NE(memory->allocate(10'000), *place);
  const std::byte elsewhere{};
  EXPECT_FALSE(memory->place_of(&elsewhere, 1));
}

TEST(HostMemory, ABlockThatIsRetiredTwiceCostsNoOther) {
  std::shared_ptr<HostArena> arena;
  const auto memory = memory_of_two(arena)[0];
  auto other = HostMemory::allocate_zeros(memory, 10'000);
  const auto failing = HostMemory::allocate_zeros(memory, 10'000);
  const std::byte* const was = other.get();
  ASSERT_LT(was, failing.get());
  for (int failure = 0; failure < 2; ++failure) {
    memory->retire(*memory->place_of(failing.get(), 1));
  }
  other.reset();
  other = HostMemory::allocate_zeros(memory, 10'000);
  EXPECT_EQ(other.get(), was);
}

TEST(HostMemory, GivesMemoryBackToTheSystem) {
  std::shared_ptr<HostArena> arena;
  const auto memory = memory_of_two(arena)[0];
  const auto resident = [&] {
    struct stat status {};
    EXPECT_EQ(::fstat(arena->fd(), &status), 0);
    return status.st_blocks * 512;
  };
  constexpr std::size_t kBytes = std::size_t{4} << 20U;
  const auto before = resident();
  auto block = HostMemory::allocate_zeros(memory, kBytes);
  EXPECT_GE(resident() - before, static_cast<std::int64_t>(kBytes));
  block.reset();
  EXPECT_EQ(resident(), before);
  block = HostMemory::allocate_zeros(memory, kBytes);  // the same addresses, with new memory
  EXPECT_GE(resident() - before, static_cast<std::int64_t>(kBytes));
  memory->retire(*memory->place_of(block.get(), 1));
  EXPECT_GE(resident() - before, static_cast<std::int64_t>(kBytes));
  block.reset();
  EXPECT_EQ(resident(), before);
}

// The fork has the parent's memory, and a copy of the book on it.
TEST(HostMemory, AForkGivesNothingBackAndGetsNothing) {
  std::shared_ptr<HostArena> arena;
  const auto memory = memory_of_two(arena)[0];
  auto block = HostMemory::allocate_zeros(memory, 10'000);
  block.get()[9'999] = std::byte{7};
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    memory->retire(*memory->place_of(block.get(), 1));
    block.reset();
    try {
      (void)HostMemory::allocate_zeros(memory, 10'000);
    } catch (const StateError&) {
      ::_exit(0);
    }
    ::_exit(1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(block.get()[9'999], std::byte{7});
}

TEST(HostMemory, IsOneForAllRanksOfAHost) {
  std::shared_ptr<HostArena> arena;
  const auto memory = memory_of_two(arena);
  const std::uint64_t place = memory[1]->allocate(5000);
  EXPECT_EQ(memory[0]->first_place_of(1), place);
  memory[1]->at(1, place, 5000)[4999] = std::byte{1};
  EXPECT_EQ(memory[0]->at(1, place, 5000)[4999], std::byte{1});
  EXPECT_FALSE(memory[0]->place_of(memory[0]->at(1, place, 1), 1)) << "the other rank's";
}

TEST(HostMemory, GoesBackWithTheLastRank) {
  std::shared_ptr<HostArena> arena;
  auto memory = memory_of_two(arena);
  const auto resident = [&] {
    struct stat status {};
    EXPECT_EQ(::fstat(arena->fd(), &status), 0);
    return status.st_blocks * 512;
  };
  (void)memory[0]->allocate(100'000);
  memory[0].reset();
  EXPECT_GE(resident(), 100'000) << "the other rank may still read it";
  memory[1].reset();
  EXPECT_LE(resident(), 16'384) << "the arena itself has a few pages";
}

}  // namespace
}  // namespace bluefog::shm
