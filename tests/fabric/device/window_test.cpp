// Windows of tensors on a device, over the stand-in of CUDA: the same calls of a window on the CPU
// beside them give the same bits.
#include "ops/window.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bluefog_cpp/context/context_core.hpp"
#include "bluefog_cpp/device/device_channel.hpp"
#include "bluefog_cpp/device/peer_memory.hpp"
#include "bluefog_cpp/one_sided/one_sided.hpp"
#include "ops/collectives.hpp"
#include "tests/fabric/device/bodies.hpp"
#include "tests/fabric/device/plans.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/gpu/device_ranks.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::testing {
namespace {

using ops::Window;
using ::testing::HasSubstr;

/// Longer than two pieces of a copy, and no multiple of them.
constexpr std::size_t kSeveralPieces = 600'001;

/// Over buffers on the host, and over buffers in device memory that processes or threads share.
class DeviceWindow : public ::testing::TestWithParam<Reach> {
 protected:
  [[nodiscard]] static bool is_on_host() { return GetParam() == Reach::Host; }
  static DeviceRanks up_to_four() {
    return {.at_most = 4, .reach = GetParam(), .hosts_order = !is_on_host()};
  }
};
INSTANTIATE_TEST_SUITE_P(Buffers, DeviceWindow,
                         ::testing::Values(Reach::Host, Reach::PeerProcesses, Reach::PeerThreads),
                         link_name);

/// A window of a tensor on the device, and one of the same tensor on the CPU.
struct Twins {
  Twins(DeviceRank& own, Dtype dtype, std::size_t count, const ops::WindowOptions& options = {})
      : rank(own),
        values(thirds(dtype, count, own.context.rank())),
        tensor(own.upload(values)),
        on_device(Window::create(own.context, tensor, *ring(own.context), options)),
        on_cpu(Window::create(own.context, values.view(), *ring(own.context), options)) {}

  /// Both tensors, the associated weights and the versions of the buffers, when all ranks have made
  /// their calls.
  void expect_alike(const std::string& what) {
    ops::barrier(rank.context);
    ASSERT_EQ(rank.download(tensor), values) << what;
    ASSERT_EQ(on_device->associated_weight(), on_cpu->associated_weight()) << what;
    ASSERT_EQ(on_device->versions(), on_cpu->versions()) << what;
    ops::barrier(rank.context);
  }

  /// The contents of the buffers then.
  void expect_same_buffers(const std::string& what) {
    ops::barrier(rank.context);
    for (const WeightedRank& source : on_cpu->plan().sources) {
      const ops::WindowUpdateOptions::Weights alone{.self_weight = 0.0,
                                                    .sources = {{.rank = source.rank}}};
      Values expected(values.dtype(), values.count());
      on_cpu->update({.weights = alone, .output = expected.view()});
      const BufferView found =
          rank.upload(Values(values.dtype(), values.count()), rank.cuda.make_stream());
      on_device->update({.weights = alone, .output = found});
      ASSERT_EQ(rank.download(found), expected) << what << ", from rank " << source.rank;
    }
    ops::barrier(rank.context);
  }

  void free() {
    on_device->free();
    on_cpu->free();
  }

  DeviceRank& rank;
  Values values;
  BufferView tensor;
  std::shared_ptr<Window> on_device;
  std::shared_ptr<Window> on_cpu;
};

void every_call_like_the_cpu(DeviceRank& rank, Dtype dtype, std::size_t count,
                             ops::WindowFill fill) {
  const std::string kind = std::string(name_of(dtype)) + "[" + std::to_string(count) + "]";
  Twins twins(rank, dtype, count,
              {.name = "w", .fill = fill, .associated_weight = ops::AssociatedWeight::On});
  ASSERT_NO_FATAL_FAILURE(twins.expect_same_buffers(kind + ", create"));

  const ops::WindowPutOptions half{.self_weight = 0.5, .exclusion = ops::Exclusion::Mutex};
  twins.on_device->put(twins.tensor, half);
  twins.on_cpu->put(twins.values.view(), half);
  ASSERT_NO_FATAL_FAILURE(twins.expect_alike(kind + ", put"));
  twins.on_device->update();
  twins.on_cpu->update();
  ASSERT_NO_FATAL_FAILURE(twins.expect_alike(kind + ", update"));

  // A tensor that is not the window's.
  Values other = thirds(dtype, count, rank.context.rank() + 5);
  const BufferView other_tensor = rank.upload(other, rank.cuda.make_stream());
  twins.on_device->accumulate(other_tensor, {.self_weight = 0.25});
  twins.on_cpu->accumulate(other.view(), {.self_weight = 0.25});
  ASSERT_EQ(rank.download(other_tensor), other) << kind;
  ASSERT_NO_FATAL_FAILURE(twins.expect_alike(kind + ", accumulate"));
  twins.on_device->update_then_collect();
  twins.on_cpu->update_then_collect();
  ASSERT_NO_FATAL_FAILURE(twins.expect_alike(kind + ", update_then_collect"));

  twins.on_device->get({.exclusion = ops::Exclusion::Mutex});
  twins.on_cpu->get({.exclusion = ops::Exclusion::Mutex});
  ASSERT_NO_FATAL_FAILURE(twins.expect_same_buffers(kind + ", get"));

  twins.on_device->fill(fill);
  twins.on_cpu->fill(fill);
  ASSERT_NO_FATAL_FAILURE(twins.expect_same_buffers(kind + ", fill"));
  twins.free();
}

TEST_P(DeviceWindow, EveryCallGivesTheBitsOfTheCpu) {
  DeviceRanks ranks = up_to_four();
  ranks.at_most = few(4, 3);
  on_device_ranks(ranks, [](DeviceRank& rank) {
    for (const Dtype dtype : kFloatingDtypes) {
      for (const std::size_t count : {0, 1}) {
        ASSERT_NO_FATAL_FAILURE(
            every_call_like_the_cpu(rank, dtype, count, ops::WindowFill::OwnValue));
      }
      for (const auto fill : {ops::WindowFill::OwnValue, ops::WindowFill::Zeros}) {
        ASSERT_NO_FATAL_FAILURE(every_call_like_the_cpu(rank, dtype, 1003, fill));
      }
    }
  });
}

TEST_P(DeviceWindow, InSeveralPiecesAlsoBetweenHosts) {
  DeviceRanks ranks = up_to_four();
  ranks.at_most = few(4);
  ranks.layouts = {Layout::OneHost, Layout::TwoHosts};
  on_device_ranks(ranks, [](DeviceRank& rank) {
    every_call_like_the_cpu(rank, Dtype::Float32, kSeveralPieces, ops::WindowFill::OwnValue);
  });
}

TEST(DeviceWindowBesideNccl, GivesTheBitsOfTheCpu) {
  on_device_ranks({.at_least = 2, .at_most = 3}, [](DeviceRank& rank) {
    every_call_like_the_cpu(rank, Dtype::Float64, 77, ops::WindowFill::OwnValue);
    EXPECT_EQ(rank.cuda.counts()["nccl group"], 0);
  });
}

/// Some ranks have their tensor on a device, and others on the CPU.
TEST_P(DeviceWindow, MeetsRanksOnTheCpu) {
  DeviceRanks ranks = up_to_four();
  ranks.at_least = 2;
  ranks.layouts = {Layout::OneHost, Layout::TwoHosts};
  on_device_ranks(ranks, [](DeviceRank& rank) {
    const int own = rank.context.rank();
    Values values = thirds(Dtype::Float32, 500, own);
    Values expected = values;
    const BufferView tensor = own % 2 == 0 ? rank.upload(values) : values.view();
    const auto mixed = Window::create(rank.context, tensor, *ring(rank.context));
    const auto on_cpu = Window::create(rank.context, expected.view(), *ring(rank.context));
    mixed->put(tensor, {.self_weight = 0.5});
    on_cpu->put(expected.view(), {.self_weight = 0.5});
    ops::barrier(rank.context);
    mixed->update();
    on_cpu->update();
    ops::barrier(rank.context);
    mixed->get();
    on_cpu->get();
    ops::barrier(rank.context);
    mixed->update();
    on_cpu->update();
    EXPECT_EQ(own % 2 == 0 ? rank.download(tensor) : values, expected);
    ops::barrier(rank.context);
    mixed->free();
    on_cpu->free();
  });
}

/// Others get the tensor as it was in its owner's last call, and `publish` is one.
TEST_P(DeviceWindow, GetFindsWhatWasPublished) {
  DeviceRanks ranks = up_to_four();
  ranks.at_least = 2;
  ranks.layouts = {Layout::OneHost, Layout::TwoHosts};
  on_device_ranks(ranks, [](DeviceRank& rank) {
    const NeighborPlan plan = *ring(rank.context);
    const auto value_of = [](int r, int round) {
      return small_integers(Dtype::Float32, 9, r + 3 * round);
    };
    const BufferView tensor = rank.upload(value_of(rank.context.rank(), 0));
    const auto window = Window::create(rank.context, tensor, plan);
    const gpu::StreamHandle other = rank.cuda.make_stream();
    const auto change = [&](int round) {
      const BufferView changed = rank.upload(value_of(rank.context.rank(), round), other);
      rank.cuda.copy(tensor.data, changed.data, tensor.bytes(), other);
      rank.cuda.synchronize(other);
      ops::barrier(rank.context);
    };
    const auto expect_got = [&](int round) {
      window->get();
      const int source = plan.sources.front().rank;
      const BufferView found = rank.upload(Values(Dtype::Float32, 9));
      window->update(
          {.weights = {{.self_weight = 0.0, .sources = {{.rank = source}}}}, .output = found});
      EXPECT_EQ(rank.download(found), value_of(source, round));
    };
    change(1);
    if (rank.context.rank() == 0) {
      expect_got(0);
    }
    ops::barrier(rank.context);
    window->publish();
    ops::barrier(rank.context);
    expect_got(1);
    change(2);
    window->get();
    ops::barrier(rank.context);
    expect_got(2);
    change(3);
    window->put(tensor);
    ops::barrier(rank.context);
    expect_got(3);
    change(4);
    window->fill(ops::WindowFill::OwnValue);
    ops::barrier(rank.context);
    expect_got(4);
    ops::barrier(rank.context);
    window->fill(ops::WindowFill::Zeros);  // of the buffers alone
    ops::barrier(rank.context);
    if (rank.context.rank() == 0) {
      expect_got(4);
    }
    ops::barrier(rank.context);
    window->free();
  });
}

TEST_P(DeviceWindow, NonblockingCallsInTheirOrder) {
  DeviceRanks ranks = up_to_four();
  ranks.at_least = 2;
  on_device_ranks(ranks, [](DeviceRank& rank) {
    Twins twins(rank, Dtype::Float32, 3000, {.fill = ops::WindowFill::Zeros});
    std::vector<Work> work;
    for (int i = 0; i < 3; ++i) {  // each of what the one before has left
      work.push_back(twins.on_device->accumulate_nonblocking(twins.tensor, {.self_weight = 0.5}));
      twins.on_cpu->accumulate(twins.values.view(), {.self_weight = 0.5});
    }
    for (std::size_t i = work.size(); i-- > 0;) {
      work[i].wait();
    }
    ASSERT_NO_FATAL_FAILURE(twins.expect_alike("accumulate"));
    ASSERT_NO_FATAL_FAILURE(twins.expect_same_buffers("accumulate"));

    const Work put = twins.on_device->put_nonblocking(twins.tensor);
    const Work get = twins.on_device->get_nonblocking();
    get.synchronize();
    EXPECT_TRUE(put.done());
    put.wait();
    twins.on_cpu->put(twins.values.view());
    twins.on_cpu->get();
    ASSERT_NO_FATAL_FAILURE(twins.expect_same_buffers("put and get"));
    twins.free();
  });
}

/// The call alone waits for what the caller's stream has not done yet.
TEST_P(DeviceWindow, ComesAfterTheCallersStream) {
  DeviceRanks ranks = up_to_four();
  ranks.at_least = 2;
  on_device_ranks(ranks, [](DeviceRank& rank) {
    Twins twins(rank, Dtype::Float32, 100);
    const gpu::StreamHandle other = rank.cuda.make_stream();
    const BufferView changed = rank.upload(thirds(Dtype::Float32, 100, rank.context.rank() + 7));
    rank.cuda.synchronize(rank.stream);
    rank.shut(other);
    rank.cuda.copy(twins.tensor.data, changed.data, changed.bytes(), other);
    BufferView on_other = twins.tensor;
    on_other.stream = other;
    const Work work = twins.on_device->put_nonblocking(on_other);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_FALSE(work.done());
    meet(rank.context);
    rank.open();
    work.wait();
    Values values = thirds(Dtype::Float32, 100, rank.context.rank() + 7);
    std::ranges::copy(values.bytes(), twins.values.bytes().begin());
    twins.on_cpu->put(twins.values.view());
    ops::barrier(rank.context);
    twins.on_device->update({.stream = other});
    twins.on_cpu->update();
    EXPECT_EQ(rank.download(on_other), twins.values);
    twins.free();
  });
}

/// A dropped work's tensor is kept until the device has done with it.
TEST_P(DeviceWindow, OfDroppedWork) {
  DeviceRanks ranks = up_to_four();
  ranks.at_least = 2;
  ranks.at_most = 3;
  on_device_ranks(ranks, [](DeviceRank& rank) {
    const BufferView tensor = rank.upload(thirds(Dtype::Float32, 10, rank.context.rank()));
    const auto window = Window::create(rank.context, tensor, *ring(rank.context));
    BufferView other = rank.upload(small_integers(Dtype::Float32, 10, 4));
    std::atomic<bool> is_free{false};
    other.owner = std::shared_ptr<void>(other.data, [&](void*) { is_free.store(true); });
    rank.shut(is_on_host() ? rank.context.core().device()->staging()->to_device()
                           : rank.context.core().one_sided().peer_memory()->stream());
    (void)window->put_nonblocking(other, {.self_weight = 2.0});
    other.owner.reset();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_FALSE(is_free.load());
    rank.open();
    while (!is_free.load()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    // Its end is known to no stream of ours, only to the thread that looked.
    Values expected = small_integers(Dtype::Float32, 10, 4);
    for (std::size_t k = 0; k < expected.count(); ++k) {
      expected.set(k, 2.0 * expected[k]);
    }
    EXPECT_TRUE(std::equal(expected.bytes().begin(), expected.bytes().end(),
                           static_cast<const std::byte*>(other.data)));
    ops::barrier(rank.context);
    window->free();
  });
}

/// Its stream would have to wait for what is no part of the graph.
TEST_P(DeviceWindow, AWaitInACaptureIsRefused) {
  DeviceRanks ranks = up_to_four();
  ranks.at_least = ranks.at_most = 2;
  on_device_ranks(ranks, [](DeviceRank& rank) {
    if (!is_on_host()) {
      return;  // the host waits for the device: there is nothing to order
    }
    const BufferView own = rank.upload(small_integers(Dtype::Float32, 10, rank.context.rank()),
                                       rank.cuda.make_stream());
    auto window = Window::create(rank.context, own, *ring(rank.context), {.name = "w"});
    const Work work = window->put_nonblocking(own);
    const auto graph = rank.capture([&] {
      EXPECT_THAT(error_of<StateError>([&] { work.wait(rank.stream); }),
                  HasSubstr("expected the wait for a window's call before the capture"));
    });
    EXPECT_TRUE(graph->steps.empty());
    work.wait(rank.stream);
    ops::barrier(rank.context);
    window->free();
  });
}

/// One tensor's worth of it on each rank, where calls come one after the other; none where buffers
/// are on devices.
TEST_P(DeviceWindow, TakesHostMemoryOnce) {
  DeviceRanks ranks = up_to_four();
  ranks.at_least = ranks.at_most = 2;
  on_device_ranks(ranks, [](DeviceRank& rank) {
    meet(rank.context);
    const int before = rank.cuda.counts()["cuMemHostAlloc"];
    meet(rank.context);
    Twins twins(rank, Dtype::Float32, 5000);
    rank.cuda.synchronize(rank.stream);
    for (int i = 0; i < 20; ++i) {
      twins.on_device->put(twins.tensor, {.self_weight = 0.5});
      rank.cuda.synchronize(rank.stream);
      twins.on_device->update();
      rank.cuda.synchronize(rank.stream);
    }
    meet(rank.context);
    EXPECT_EQ(rank.cuda.counts()["cuMemHostAlloc"] - before, is_on_host() ? 2 : 0);
    twins.free();
  });
}

}  // namespace
}  // namespace bluefog::testing
