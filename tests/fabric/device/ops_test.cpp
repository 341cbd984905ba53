// Operations on device memory, over the stand-in of CUDA and NCCL: results have the bits of the
// same calls on the CPU, and streams are ordered by events alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <utility>

#include "ops/collectives.hpp"
#include "ops/neighbor_allreduce.hpp"
#include "tests/fabric/device/bodies.hpp"
#include "tests/fabric/device/plans.hpp"
#include "tests/support/gpu/device_ranks.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::testing {
namespace {

std::vector<Plan> plans_of(const Context& context) {
  const int n = context.size();
  const int rank = context.rank();
  std::vector<Plan> plans;
  for (const MixingMatrix& w : {topology::exponential(n), topology::ring(n), topology::star(n),
                                topology::fully_connected(n), MixingMatrix::identity(n)}) {
    plans.push_back(share(w.plan_for(rank)));
  }
  // One way round, with weights at the sender too.
  NeighborPlan directed = NeighborPlan::alone(rank, n);
  if (n > 1) {
    directed.self_weight = 0.6;
    directed.sources = {{(rank + n - 1) % n, 0.7}};
    directed.destinations = {{(rank + 1) % n, 0.3 + rank}};
  }
  plans.push_back(share(directed));
  return plans;
}

class DeviceNeighborAllreduce : public OverLinks {};
BF_OVER_LINKS(DeviceNeighborAllreduce);

TEST_P(DeviceNeighborAllreduce, BitsOfTheCpu) {
  on_links({}, [](DeviceRank& rank) {
    for (const Plan& plan : plans_of(rank.context)) {
      for (const Dtype dtype : kFloatingDtypes) {
        for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{1003}}) {
          const Values input = thirds(dtype, count, rank.context.rank());
          Values expected = input;
          ops::neighbor_allreduce(rank.context, expected.view(), plan);

          BufferView own = rank.upload(input);
          BufferView output = rank.upload(Values(dtype, count));
          ops::neighbor_allreduce(rank.context, own, output, plan);
          ASSERT_EQ(rank.download(output), expected) << name_of(dtype) << "[" << count << "]";
          ASSERT_EQ(rank.download(own), input);
          ops::neighbor_allreduce(rank.context, own, plan, {.check = ops::PlanCheck::Checked});
          ASSERT_EQ(rank.download(own), expected)
              << name_of(dtype) << "[" << count << "], in place";
        }
      }
    }
  });
}

TEST_P(DeviceNeighborAllreduce, MemoryThatIsNotAligned) {
  on_links({.at_least = 3, .at_most = 4}, [](DeviceRank& rank) {
    const Plan plan = share(topology::ring(rank.context.size()).plan_for(rank.context.rank()));
    for (const std::size_t shift : {4, 12, 16}) {
      const Values input = thirds(Dtype::Float32, 517, rank.context.rank());
      Values expected = input;
      ops::neighbor_allreduce(rank.context, expected.view(), plan);
      // Not as on the other ranks either, where their number is odd.
      const std::size_t own_shift = shift + 4 * static_cast<std::size_t>(rank.context.rank() % 2);
      const BufferView own = rank.upload(input, rank.stream, own_shift);
      ops::neighbor_allreduce(rank.context, own, plan);
      ASSERT_EQ(rank.download(own), expected) << shift;
    }
  });
}

TEST_P(DeviceNeighborAllreduce, SeveralUnderWayOnStreamsOfTheirOwn) {
  on_links({.at_least = 2}, [](DeviceRank& rank) { several_under_way(rank); });
}

TEST_P(DeviceNeighborAllreduce, InputAndOutputOnDifferentStreams) {
  on_links({.at_least = 2, .at_most = 3}, [](DeviceRank& rank) {
    const Plan plan = share(topology::ring(rank.context.size()).plan_for(rank.context.rank()));
    Values expected = thirds(Dtype::Float32, 300, rank.context.rank());
    const BufferView input = rank.upload(expected);
    const BufferView output = rank.upload(Values(Dtype::Float32, 300), rank.cuda.make_stream());
    ops::neighbor_allreduce(rank.context, input, output, plan);
    ops::neighbor_allreduce(rank.context, expected.view(), plan);
    ASSERT_EQ(rank.download(output), expected);
    // The input may be written again.
    rank.cuda.enqueue(rank.stream, "a kernel", {{input.data, input.bytes(), true}}, [] {});
  });
}

/// Blocking calls return with the device still before their beginning: nothing waits for it.
TEST_P(DeviceNeighborAllreduce, NobodyWaitsForTheDevice) {
  on_links({.at_least = 2, .at_most = 4}, [](DeviceRank& rank) {
    const Plan plan = share(topology::ring(rank.context.size()).plan_for(rank.context.rank()));
    rank.shut(rank.stream);
    const Values input = thirds(Dtype::Float32, 100, rank.context.rank());
    Values expected = input;
    const BufferView own = rank.upload(input);
    for (int i = 0; i < 3; ++i) {
      ops::neighbor_allreduce(rank.context, own, plan);
      ops::neighbor_allreduce(rank.context, expected.view(), plan);
    }
    const Work work = ops::neighbor_allreduce_nonblocking(rank.context, own, plan);
    work.wait();
    EXPECT_TRUE(work.done());
    meet(rank.context);
    EXPECT_EQ(rank.cuda.counts()["a result"], 0);
    rank.open();
    work.synchronize();
    ops::neighbor_allreduce(rank.context, expected.view(), plan);
    ASSERT_EQ(rank.download(own), expected);
  });
}

/// Many steps take scratch memory and events once.
TEST_P(DeviceNeighborAllreduce, ScratchIsUsedAgain) {
  on_links({.at_least = 2, .at_most = 2}, [](DeviceRank& rank) {
    const Plan plan = share(topology::ring(2).plan_for(rank.context.rank()));
    const BufferView own = rank.upload(thirds(Dtype::Float32, 1000, rank.context.rank()));
    const auto step = [&] {
      for (int i = 0; i < 20; ++i) {
        ops::neighbor_allreduce(rank.context, own, plan);
      }
      ops::neighbor_allreduce_nonblocking(rank.context, own, plan).synchronize();
      meet(rank.context);
    };
    step();
    const int before = rank.cuda.counts()["cuMemAlloc"];
    step();
    meet(rank.context);
    EXPECT_EQ(rank.cuda.counts()["cuMemAlloc"], before);
  });
}

class DeviceAllreduce : public OverLinks {};
BF_OVER_LINKS(DeviceAllreduce);

TEST_P(DeviceAllreduce, BitsOfTheCpu) {
  on_links(
      {.at_most = few(8, 4), .layouts = {Layout::OneHost, Layout::TwoHosts}}, [](DeviceRank& rank) {
        for (const Dtype dtype : kAllDtypes) {
          for (const std::size_t count : {std::size_t{0}, std::size_t{3}, std::size_t{7001}}) {
            for (const auto reduction : {ops::Reduction::Sum, ops::Reduction::Average}) {
              for (const auto scope : {ops::Scope::Global, ops::Scope::Machine}) {
                if (dtype == Dtype::Bool ||
                    (!is_floating(dtype) && reduction == ops::Reduction::Average)) {
                  continue;
                }
                Values expected = is_floating(dtype)
                                      ? thirds(dtype, count, rank.context.rank())
                                      : small_integers(dtype, count, rank.context.rank());
                const BufferView own = rank.upload(expected);
                const ops::AllreduceOptions options{.reduction = reduction, .scope = scope};
                ops::allreduce(rank.context, own, options);
                ops::allreduce(rank.context, expected.view(), options);
                ASSERT_EQ(rank.download(own), expected) << name_of(dtype) << "[" << count << "]";
              }
            }
          }
        }
      });
}

class DeviceBroadcast : public OverLinks {};
BF_OVER_LINKS(DeviceBroadcast);

TEST_P(DeviceBroadcast, AnyRootAndDtype) {
  on_links({.layouts = {Layout::OneHost, Layout::TwoHosts}}, [](DeviceRank& rank) {
    for (const Dtype dtype : kAllDtypes) {
      for (const int root : {0, rank.context.size() - 1}) {
        const BufferView own = rank.upload(small_integers(dtype, 777, rank.context.rank()));
        ops::broadcast(rank.context, own, root);
        ASSERT_EQ(rank.download(own), small_integers(dtype, 777, root)) << name_of(dtype);
      }
    }
  });
}

class DeviceAllgather : public OverLinks {};
BF_OVER_LINKS(DeviceAllgather);

TEST_P(DeviceAllgather, UnequalCounts) {
  on_links({}, [](DeviceRank& rank) {
    const int n = rank.context.size();
    for (const Dtype dtype : {Dtype::Float32, Dtype::Bool, Dtype::Int64}) {
      const auto count_of = [](int r) {
        return static_cast<std::size_t>(r == 1 ? 0 : 5 + 100 * r);
      };
      const BufferView own =
          rank.upload(small_integers(dtype, count_of(rank.context.rank()), rank.context.rank()));
      std::vector<double> expected;
      for (int r = 0; r < n; ++r) {
        const auto part = small_integers(dtype, count_of(r), r).to_doubles();
        expected.insert(expected.end(), part.begin(), part.end());
      }
      BufferView all;
      ops::allgather(rank.context, own, [&](const std::vector<std::int64_t>& counts) {
        const auto total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
        // Like a caller's allocator: memory in the order of the caller's stream.
        all = {.data = rank.cuda.allocate(static_cast<std::size_t>(total) * size_of(dtype)),
               .count = total,
               .dtype = dtype,
               .device = own.device,
               .stream = own.stream};
        return all;
      });
      ASSERT_EQ(rank.download(all).to_doubles(), expected) << name_of(dtype);
    }
  });
}

/// Room may be memory that what is on the stream by then still uses, as an allocator hands it on.
TEST_P(DeviceAllgather, RoomIsFreeInTheOrderOfItsStream) {
  on_links({.at_least = 2, .at_most = 3}, [](DeviceRank& rank) {
    const int n = rank.context.size();
    const BufferView own = rank.upload(small_integers(Dtype::Float32, 100, rank.context.rank()));
    const BufferView used = rank.upload(Values(Dtype::Float32, 100 * static_cast<std::size_t>(n)));
    const auto room = [&](const auto& /*counts*/) { return used; };
    Work work;
    if (rank.context.rank() == 0) {
      work = ops::allgather_nonblocking(rank.context, own, room);
    }
    // Rank 0 has made its call, and the others have not: there is no room yet.
    meet(rank.context);
    rank.cuda.enqueue(rank.stream, "the user's kernel",
                      {{.memory = used.data, .bytes = used.bytes(), .writes = true}},
                      [=] { std::memset(used.data, 0x55, used.bytes()); });
    meet(rank.context);
    if (rank.context.rank() != 0) {
      work = ops::allgather_nonblocking(rank.context, own, room);
    }
    work.wait();
    std::vector<double> expected;
    for (int r = 0; r < n; ++r) {
      const auto part = small_integers(Dtype::Float32, 100, r).to_doubles();
      expected.insert(expected.end(), part.begin(), part.end());
    }
    ASSERT_EQ(rank.download(used).to_doubles(), expected);
  });
}

class DeviceOps : public OverLinks {};
BF_OVER_LINKS(DeviceOps);

TEST_P(DeviceOps, BesideTheSameOnTheCpu) {
  on_links({.at_least = 2}, [](DeviceRank& rank) {
    const Plan plan =
        share(topology::exponential(rank.context.size()).plan_for(rank.context.rank()));
    Values on_cpu = thirds(Dtype::Float32, 5000, rank.context.rank());
    const BufferView on_device = rank.upload(on_cpu);
    const Work first = ops::neighbor_allreduce_nonblocking(rank.context, on_cpu.view(), plan);
    const Work second = ops::neighbor_allreduce_nonblocking(rank.context, on_device, plan);
    ops::barrier(rank.context);
    second.wait();
    first.wait();
    ASSERT_EQ(rank.download(on_device), on_cpu);
  });
}

}  // namespace
}  // namespace bluefog::testing
