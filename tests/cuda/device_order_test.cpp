// The order in which calls on GPUs, the caller's streams and calls on the CPU do their work.
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "bluefog_cpp/context/context_core.hpp"
#include "bluefog_cpp/error.hpp"
#include "ops/collectives.hpp"
#include "ops/neighbor_allgather.hpp"
#include "ops/neighbor_allreduce.hpp"
#include "ops/pair_gossip.hpp"
#include "tests/cuda/ways.hpp"

namespace bluefog::testing {
namespace {

class DeviceOrder : public OverWays {};
BF_OVER_WAYS(DeviceOrder);

/// Several calls under way on three streams, whose inputs are written there only after the calls
/// were made; they are waited for in reverse order.
TEST_P(DeviceOrder, SeveralUnderWayOnSeveralStreams) {
  on_gpus([](Rank& rank) {
    const Plan plan = plan_of(rank.context, topology::exponential(rank.context.size()));
    const std::array streams{rank.gpu.stream(), rank.gpu.make_stream(), rank.gpu.make_stream()};
    std::vector<BufferView> inputs;
    std::vector<BufferView> buffers;
    std::vector<Values> expected;
    for (int i = 0; i < 12; ++i) {
      Values values = thirds(Dtype::Float32, static_cast<std::size_t>(1 + 1370 * i),
                             rank.context.rank() + 7 * i);
      inputs.push_back(rank.gpu.upload(values));
      buffers.push_back(rank.gpu.upload(Values(values.dtype(), values.count())));
      buffers.back().stream = streams[static_cast<std::size_t>(i) % streams.size()];
      ops::neighbor_allreduce(rank.context, values.view(), plan);
      expected.push_back(std::move(values));
    }
    for (const bool is_late : {false, true}) {
      rank.gpu.synchronize();
      meet(rank.context);
      for (gpu::StreamHandle const stream : streams) {
        if (is_late) {
          rank.gpu.shut(stream);
        }
      }
      std::vector<Work> work;
      for (std::size_t i = 0; i < buffers.size(); ++i) {
        rank.gpu.copy(buffers[i], inputs[i]);
        work.push_back(ops::neighbor_allreduce_nonblocking(rank.context, buffers[i], plan));
      }
      meet(rank.context);
      rank.gpu.open();
      for (std::size_t i = work.size(); i-- > 0;) {
        work[i].wait();
        ASSERT_EQ(rank.gpu.download(buffers[i]), expected[i]) << i;
      }
    }
  });
}

/// An operation that is put on the stream between the start and the wait of an `OnWait` call reads
/// the buffer as it was, however late it runs.
TEST_P(DeviceOrder, AHeldResultComesAfterWhatIsOnTheStream) {
  on_gpus([](Rank& rank) {
    const Plan plan = plan_of(rank.context, topology::exponential(rank.context.size()));
    for (const std::size_t count : {std::size_t{501}, std::size_t{700'001}}) {
      const Values input = thirds(Dtype::Float32, count, rank.context.rank());
      Values expected = input;
      ops::neighbor_allreduce(rank.context, expected.view(), plan);
      const BufferView source = rank.gpu.upload(input);
      const BufferView own = rank.gpu.upload(Values(Dtype::Float32, count));
      const BufferView read = rank.gpu.upload(Values(Dtype::Float32, count));
      for (const bool is_late : {false, true}) {
        rank.gpu.copy(own, source);
        rank.gpu.copy(read, own);
        rank.gpu.synchronize();
        const Work work = ops::neighbor_allreduce_nonblocking(
            rank.context, own, plan, {.completion = ops::Completion::OnWait});
        meet(rank.context);
        if (is_late) {
          rank.gpu.shut(rank.gpu.stream());
        }
        rank.gpu.copy(read, own);
        if (rank.context.core().device()->way_of(OpKind::NeighborAllreduce) == DeviceWay::Host) {
          rank.gpu.open();  // its copies begin at the wait, which waits for the input's
        }
        work.wait();
        meet(rank.context);
        rank.gpu.open();
        ASSERT_EQ(rank.gpu.download(own), expected) << count;
        ASSERT_EQ(rank.gpu.download(read), input) << count;
      }
    }
  });
}

/// Calls on the CPU, barriers and calls through the host while a call on the device is under way.
TEST_P(DeviceOrder, CallsOnTheCpuInBetween) {
  on_gpus([](Rank& rank) {
    const Plan plan = plan_of(rank.context, topology::exponential(rank.context.size()));
    const int pair = rank.context.rank() ^ 1;
    for (int i = 0; i < 8; ++i) {
      Values values = thirds(Dtype::Float32, static_cast<std::size_t>(5 + 3000 * i),
                             rank.context.rank() + 7 * i);
      const BufferView own = rank.gpu.upload(values);
      const BufferView gossiping = rank.gpu.upload(values);
      Values gossiped = values;
      const Work work = ops::neighbor_allreduce_nonblocking(rank.context, own, plan);
      ops::neighbor_allreduce(rank.context, values.view(), plan);
      if (pair < rank.context.size()) {
        ops::pair_gossip(rank.context, gossiping, pair);
        ops::pair_gossip(rank.context, gossiped.view(), pair);
      }
      ops::barrier(rank.context);
      const Work averaging = ops::allreduce_nonblocking(rank.context, own);
      ops::allreduce(rank.context, values.view());
      averaging.wait();
      work.wait();
      ASSERT_EQ(rank.gpu.download(own), values) << i;
      ASSERT_EQ(rank.gpu.download(gossiping), gossiped) << i;
    }
  });
}

class DeviceMixed : public OverWays {
 protected:
  /// Even ranks have their values on their GPU, odd ones on the CPU: `call` gives the bits that it
  /// gives where all are on the CPU.
  template <typename Call>
  static void expect_like_the_cpu(Rank& rank, const char* name, int seed, const Call& call) {
    Values expected = thirds(Dtype::Float32, 5001, rank.context.rank() + seed);
    Values on_cpu = expected;
    const bool is_on_gpu = rank.context.rank() % 2 == 0;
    const BufferView own = is_on_gpu ? rank.gpu.upload(expected) : on_cpu.view();
    call(expected.view());
    call(own);
    ASSERT_EQ(is_on_gpu ? rank.gpu.download(own) : on_cpu, expected) << name;
  }
};
BF_OVER_WAYS(DeviceMixed);

TEST_P(DeviceMixed, RanksOnTheCpuMeetRanksOnGpusThroughTheHost) {
  on_gpus({.at_least = 2}, [](Rank& rank) {
    Context& context = rank.context;
    const int pair = context.rank() ^ 1;
    expect_like_the_cpu(rank, "pair_gossip", 0, [&](const BufferView& buffer) {
      if (pair < context.size()) {
        ops::pair_gossip(context, buffer, pair);
      }
    });
    if (!goes_through_host()) {
      return;
    }
    const Plan plan = plan_of(context, topology::exponential(context.size()));
    expect_like_the_cpu(rank, "neighbor_allreduce", 7, [&](const BufferView& buffer) {
      ops::neighbor_allreduce(context, buffer, plan);
    });
    expect_like_the_cpu(rank, "allreduce", 14,
                        [&](const BufferView& buffer) { ops::allreduce(context, buffer); });
    expect_like_the_cpu(rank, "broadcast", 21,
                        [&](const BufferView& buffer) { ops::broadcast(context, buffer, 0); });
    ops::barrier(context);
  });
}

TEST_P(DeviceMixed, OtherCallsDoNotMatch) {
  if (goes_through_host()) {
    GTEST_SKIP() << "through the host they match";
  }
  on_gpus({.at_least = 2, .at_most = 2}, [](Rank& rank) {
    Values on_cpu = thirds(Dtype::Float32, 6, rank.context.rank());
    const Values before = on_cpu;
    const bool is_on_gpu = rank.context.rank() == 0;
    const BufferView own = is_on_gpu ? rank.gpu.upload(on_cpu) : on_cpu.view();
    EXPECT_THROW(
        {
          ops::neighbor_allreduce(rank.context, own,
                                  plan_of(rank.context, topology::ring(rank.context.size())));
          ops::barrier(rank.context);  // at the latest
        },
        MismatchError);
    EXPECT_EQ(is_on_gpu ? rank.gpu.download(own) : on_cpu, before);
    meet(rank.context);
    expect_device_usable(rank);
  });
}

}  // namespace
}  // namespace bluefog::testing
