// The memory that many ranks of a host take, as threads of this process.
#include "bluefog_cpp/transport/shm/host_group.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bluefog_cpp/thread_bootstrap.hpp"

namespace bluefog::shm {
namespace {

constexpr std::size_t kRanks = 64;

/// The groups of ranks of one host, by rank.
std::vector<std::unique_ptr<HostGroup>> form_groups(std::vector<std::shared_ptr<HostArena>>& arenas,
                                                    const std::vector<GroupShape>& shapes,
                                                    std::vector<std::string>& errors) {
  const std::size_t size = shapes.size();
  const auto bootstraps = make_thread_bootstraps(static_cast<int>(size));
  const std::vector<std::string> one_host(size, "host");
  std::vector<std::unique_ptr<HostGroup>> groups(size);
  arenas.resize(size);
  {
    std::vector<std::jthread> threads;
    for (std::size_t rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        FormedGroup formed =
            form_group(*bootstraps[rank], one_host, arenas[rank], shapes[rank], Deadline::never());
        groups[rank] = std::move(formed.group);
        if (rank == 0) {
          errors = std::move(formed.errors);
        }
      });
    }
  }
  return groups;
}

std::size_t bytes_of(const HostArena& arena) {
  struct stat status {};
  EXPECT_EQ(::fstat(arena.fd(), &status), 0);
  return static_cast<std::size_t>(status.st_blocks) * 512;
}

TEST(HostGroup, MemoryGrowsWithNeighboursAndNotWithRanks) {
  std::vector<std::shared_ptr<HostArena>> arenas;
  std::vector<std::string> errors;
  auto groups = form_groups(arenas, std::vector<GroupShape>(kRanks), errors);
  ASSERT_NE(groups.back(), nullptr);
  const std::size_t at_start = bytes_of(*arenas.front());
  EXPECT_LE(at_start, GroupPlaces::of(kRanks).end + 16 * kPage) << "less than 10 KiB a rank";
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    const std::size_t next = (rank + 1) % kRanks;
    auto* const stream = groups[rank]->make<Stream>(groups[rank]->link(rank, next).streams[0]);
    EXPECT_EQ(groups[next]->find<Stream>(rank, groups[next]->link(rank, next).streams[0]), stream);
    EXPECT_EQ(groups[next]->find<Stream>(next, groups[next]->link(next, rank).streams[0]), nullptr)
        << "a stream that nobody has made";
  }
  EXPECT_LE(bytes_of(*arenas.front()) - at_start, kRanks * round_up(sizeof(Stream), kPage));
  // A second group, as of a copy of the context, lies in the same arena.
  const auto* const arena = arenas.front().get();
  auto copies = form_groups(arenas, std::vector<GroupShape>(kRanks), errors);
  EXPECT_EQ(arenas.front().get(), arena);
  EXPECT_EQ(arenas.back().get(), arena);
  copies.clear();
  groups.clear();
  EXPECT_LE(bytes_of(*arena), 16 * kPage) << "memory goes back with the last rank";
}

TEST(HostGroup, RanksThatDisagreeOnSizesAllGetNone) {
  std::vector<std::shared_ptr<HostArena>> arenas;
  std::vector<std::string> errors;
  std::vector<GroupShape> shapes(3, {.chunk_bytes = 4096, .slots = 4});
  shapes[1].slots = 8;
  const auto groups = form_groups(arenas, shapes, errors);
  for (std::size_t rank = 0; rank < shapes.size(); ++rank) {
    EXPECT_EQ(groups[rank], nullptr);
    EXPECT_EQ(arenas[rank], nullptr);
    EXPECT_EQ(errors[rank].empty(), rank != 1) << errors[rank];
  }
  EXPECT_NE(errors[1].find("rank 0 has layout"), std::string::npos) << errors[1];
}

}  // namespace
}  // namespace bluefog::shm
