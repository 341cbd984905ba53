// Windows whose buffers are in device memory that ranks have opened, over the stand-in of CUDA:
// when they are, what becomes of the memory, and what goes wrong there alone. The behaviour that
// all windows of tensors on a device share is looked at in device_window_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bluefog_cpp/context/context_core.hpp"
#include "bluefog_cpp/device/peer_memory.hpp"
#include "bluefog_cpp/error.hpp"
#include "bluefog_cpp/one_sided/one_sided.hpp"
#include "ops/collectives.hpp"
#include "ops/window.hpp"
#include "tests/fabric/device/bodies.hpp"
#include "tests/fabric/device/windows.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/gpu/device_ranks.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::testing {
namespace {

using ops::Window;
using ::testing::AllOf;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

BufferView tensor_of(DeviceRank& rank, std::size_t count = 100) {
  return rank.upload(thirds(Dtype::Float32, count, rank.context.rank()));
}

/// The same calls of a window on the CPU give the same bits.
void expect_like_the_cpu(DeviceRank& rank) {
  Values values = thirds(Dtype::Float32, 1003, rank.context.rank());
  const BufferView tensor = rank.upload(values);
  const auto window = window_of(rank, tensor, "on device");
  const auto on_cpu = window_of(rank, values.view(), "on CPU");
  window->put(tensor, {.self_weight = 0.5});
  on_cpu->put(values.view(), {.self_weight = 0.5});
  ops::barrier(rank.context);
  window->update();
  on_cpu->update();
  EXPECT_EQ(rank.download(tensor), values);
  ops::barrier(rank.context);
  window->free();
  on_cpu->free();
}

class DeviceWindowPeer : public ::testing::TestWithParam<Reach> {
 protected:
  static DeviceRanks two_or_three() {
    return {.at_least = 2, .at_most = 3, .reach = GetParam(), .hosts_order = true};
  }
};
INSTANTIATE_TEST_SUITE_P(Links, DeviceWindowPeer,
                         ::testing::Values(Reach::PeerProcesses, Reach::PeerThreads), link_name);

/// Blocks of device memory less those that were given back.
int blocks_of(DeviceRank& rank) {
  const auto counts = rank.cuda.counts();
  const auto count = [&](const char* call) {
    const auto found = counts.find(call);
    return found == counts.end() ? 0 : found->second;
  };
  return count("cuMemAlloc") - count("cuMemFree");
}

int opened(DeviceRank& rank) {
  return rank.cuda.counts()["cuIpcOpenMemHandle"] - rank.cuda.counts()["cuIpcCloseMemHandle"];
}

TEST_P(DeviceWindowPeer, GivesItsMemoryBackAtFree) {
  on_device_ranks(two_or_three(), [](DeviceRank& rank) {
    const int n = rank.context.size();
    const BufferView small = tensor_of(rank);
    const BufferView large = tensor_of(rank, 1'000'000);
    meet(rank.context);
    const int before = blocks_of(rank);
    const int opened_before = opened(rank);
    meet(rank.context);
    std::vector<std::shared_ptr<Window>> windows;
    for (int i = 0; i < 20; ++i) {
      windows.push_back(window_of(rank, small, std::to_string(i)));
    }
    meet(rank.context);
    EXPECT_EQ(blocks_of(rank) - before, n) << "small windows share a block on each rank";
    meet(rank.context);
    windows.push_back(window_of(rank, large, "large"));
    meet(rank.context);
    EXPECT_EQ(blocks_of(rank) - before, 2 * n);
    // Each rank has opened both blocks of its one or two neighbours.
    EXPECT_EQ(opened(rank) - opened_before, GetParam() == Reach::PeerThreads ? 0 : 2 * n * (n - 1));
    meet(rank.context);
    for (std::size_t i = windows.size(); i-- > 0;) {
      windows[(i + 7) % windows.size()]->free();
    }
    meet(rank.context);
    EXPECT_EQ(blocks_of(rank), before);
    EXPECT_EQ(opened(rank), opened_before);
    meet(rank.context);
    expect_like_the_cpu(rank);
  });
}

/// A window that nobody frees is given back with the context.
TEST_P(DeviceWindowPeer, GivesItsMemoryBackAtTheContextsEnd) {
  const auto kept_after = [](bool has_window) {
    std::shared_ptr<CudaStandIn> cuda;
    int blocks = 0;
    on_device_ranks({.at_least = 2, .at_most = 2, .reach = GetParam(), .hosts_order = true},
                    [&](DeviceRank& rank) {
                      const BufferView tensor = tensor_of(rank);
                      if (has_window) {
                        const auto window = window_of(rank, tensor);
                        window->put(tensor);
                        ops::barrier(rank.context);
                      }
                      if (rank.context.rank() == 0) {
                        cuda = rank.shared_cuda();
                      }
                      meet(rank.context);
                    });
    const auto counts = cuda->counts();
    blocks = counts.at("cuMemAlloc") - counts.at("cuMemFree");
    return blocks;
  };
  EXPECT_EQ(kept_after(true), kept_after(false));
}

TEST_P(DeviceWindowPeer, CreationWithoutMemoryIsRefusedOnAllRanks) {
  on_device_ranks(two_or_three(), [](DeviceRank& rank) {
    const BufferView tensor = tensor_of(rank);
    meet(rank.context);
    const int before = blocks_of(rank);
    meet(rank.context);
    if (rank.context.rank() == 1) {
      rank.cuda.fail_next("cuMemAlloc", 1, 2);
      EXPECT_THAT(error_of<CudaError>([&] { (void)window_of(rank, tensor); }),
                  AllOf(HasSubstr("rank 1, window 'w', win_create: "), HasSubstr("cuMemAlloc")));
    } else {
      EXPECT_THAT(error_of<PeerFailure>([&] { (void)window_of(rank, tensor); }),
                  AllOf(HasSubstr("rank 1 refused it"), HasSubstr("cuMemAlloc")));
    }
    meet(rank.context);
    EXPECT_EQ(blocks_of(rank), before + 1) << "more than the call that failed";
    meet(rank.context);
    expect_like_the_cpu(rank);
  });
}

/// If one rank's memory cannot be opened, or its copy of it cannot be shown, all keep their
/// buffers on the host, and do not try again.
TEST_P(DeviceWindowPeer, KeepsBuffersOnTheHostWhereOneRankCannotShare) {
  const std::vector<std::string> calls =
      GetParam() == Reach::PeerThreads
          ? std::vector<std::string>{"cuIpcGetMemHandle", "cuModuleGetFunction"}
          : std::vector<std::string>{"cuIpcGetMemHandle", "cuModuleGetFunction",
                                     "cuIpcOpenMemHandle"};
  for (const std::string& call : calls) {
    on_device_ranks(two_or_three(), [&call](DeviceRank& rank) {
      const BufferView tensor = tensor_of(rank);
      meet(rank.context);
      const int before = blocks_of(rank);
      const int opened_before = opened(rank);
      meet(rank.context);
      if (rank.context.rank() == 1) {
        rank.cuda.fail_next(call, 1, 217);
      }
      const auto window = window_of(rank, tensor);
      meet(rank.context);
      EXPECT_EQ(blocks_of(rank), before) << call;
      EXPECT_EQ(opened(rank), opened_before + (call == "cuIpcOpenMemHandle" ? 1 : 0)) << call;
      EXPECT_THAT(rank.context.core().one_sided().peer_obstacle(),
                  AllOf(HasSubstr("rank 1: "), HasSubstr(call)));
      meet(rank.context);
      expect_like_the_cpu(rank);
      EXPECT_EQ(blocks_of(rank), before + rank.context.size()) << "the tensors alone";
      meet(rank.context);
      window->free();
    });
  }
}

/// Only where a setting asks for nothing else.
TEST_P(DeviceWindowPeer, FollowsTheWayOfCalls) {
  for (const bool is_nccl : {false, true}) {
    on_device_ranks(
        {.at_least = 2,
         .at_most = 2,
         .settings = [](Settings& settings) { settings.device_way = DeviceWayChoice::Auto; },
         .reach = is_nccl ? Reach::Nccl : GetParam(),
         .hosts_order = true},
        [](DeviceRank& rank) {
          const auto window = window_of(rank, tensor_of(rank));
          EXPECT_NE(rank.context.core().one_sided().peer_memory(), nullptr);
          window->free();
          expect_like_the_cpu(rank);
        });
  }
}

/// Its buffer is not free before the device has written it, and a device that does not is not
/// waited for in vain.
TEST_P(DeviceWindowPeer, ADeviceThatStopsInACall) {
  DeviceRanks ranks = two_or_three();
  ranks.at_most = 2;
  ranks.settings = [](Settings& settings) { settings.timeout = 600ms; };
  on_device_ranks(ranks, [](DeviceRank& rank) {
    const int own = rank.context.rank();
    const BufferView tensor = tensor_of(rank);
    const auto window = window_of(rank, tensor);
    rank.cuda.synchronize(rank.stream);
    if (own == 1) {
      rank.shut(rank.context.core().one_sided().peer_memory()->stream());
      EXPECT_THAT(
          error_of<TimeoutError>([&] { window->put(tensor); }),
          AllOf(HasSubstr("rank 1, window 'w', win_put: its work on CUDA device 1"),
                HasSubstr("half written"), HasSubstr("not done after 0.6 s (BLUEFOG_TIMEOUT)")));
    }
    meet(rank.context);
    if (own == 1) {
      EXPECT_THAT(error_of<StateError>([&] { window->free(); }),
                  HasSubstr("work of rank 1 is still under way on CUDA device 1"));
    } else {
      EXPECT_THAT(error_of<PeerFailure>([&] { window->free(); }), HasSubstr("under way"));
    }
    meet(rank.context);
    rank.open();
    if (own == 1) {
      while (!rank.context.core().one_sided().peer_memory()->is_idle()) {
        std::this_thread::sleep_for(1ms);
      }
    }
    meet(rank.context);
    window->fill(ops::WindowFill::Zeros);
    window->put(tensor);
    ops::barrier(rank.context);
    window->update();
    window->free();
  });
}

/// The transfers that a failing call has begun are done before others have its locks.
TEST_P(DeviceWindowPeer, ACallThatFailsHalfway) {
  DeviceRanks ranks = two_or_three();
  ranks.at_most = 2;
  on_device_ranks(ranks, [](DeviceRank& rank) {
    const BufferView tensor = tensor_of(rank);
    const auto window = window_of(rank, tensor);
    if (rank.context.rank() == 0) {
      rank.shut(rank.context.core().one_sided().peer_memory()->stream());
      const std::jthread opens_soon([&] {
        std::this_thread::sleep_for(50ms);
        rank.open();
      });
      rank.cuda.fail_next("cuMemsetD8Async", 0, 700);  // behind the sum
      EXPECT_THAT(error_of<CudaError>([&] { window->update_then_collect(); }),
                  HasSubstr("rank 0, window 'w', win_update: cuMemsetD8Async"));
    }
    meet(rank.context);
    window->put(tensor);
    ops::barrier(rank.context);
    window->free();
  });
}

/// Locks are not held while a call waits for its caller's stream.
TEST_P(DeviceWindowPeer, HoldsNoLockForTheCallersStream) {
  DeviceRanks ranks = two_or_three();
  ranks.at_most = 2;
  on_device_ranks(ranks, [](DeviceRank& rank) {
    const BufferView tensor = tensor_of(rank);
    const auto window = window_of(rank, tensor);
    rank.cuda.synchronize(rank.stream);
    Work put;
    if (rank.context.rank() == 1) {
      rank.shut(rank.stream);
      put = window->put_nonblocking(tensor);
      std::this_thread::sleep_for(20ms);
      EXPECT_FALSE(put.done());
    }
    meet(rank.context);
    if (rank.context.rank() == 0) {
      window->update();  // of the buffer that rank 1 will write
      window->get();
    }
    meet(rank.context);
    rank.open();
    if (rank.context.rank() == 1) {
      put.wait();
      window->put(tensor);
    }
    ops::barrier(rank.context);
    window->free();
  });
}

/// While ranks add to all buffers, nothing that an update collects is lost or counted twice.
TEST_P(DeviceWindowPeer, NothingIsLostWhileRanksAddAndCollect) {
  DeviceRanks ranks = two_or_three();
  ranks.at_most = 4;
  on_device_ranks(ranks, [](DeviceRank& rank) {
    constexpr int kRounds = 40;
    Values ones(Dtype::Float32, 300);
    for (std::size_t k = 0; k < ones.count(); ++k) {
      ones.set(k, 1.0);
    }
    const BufferView total = rank.upload(Values(Dtype::Float32, 300));
    const BufferView one = rank.upload(ones);
    const auto window =
        Window::create(rank.context, total, *ring(rank.context), {.fill = ops::WindowFill::Zeros});
    for (int round = 0; round < kRounds; ++round) {
      window->accumulate(one);
      window->update_then_collect();
    }
    ops::barrier(rank.context);
    window->update_then_collect();
    for (std::size_t k = 0; k < ones.count(); ++k) {
      ones.set(k, kRounds * static_cast<double>(window->plan().sources.size()));
    }
    EXPECT_EQ(rank.download(total), ones);
    ops::barrier(rank.context);
    window->free();
  });
}

TEST_P(DeviceWindowPeer, IsNoPartOfACudaGraph) {
  on_device_ranks(two_or_three(), [](DeviceRank& rank) {
    const BufferView tensor = tensor_of(rank);
    const auto window = window_of(rank, tensor);
    const BufferView other = tensor_of(rank);
    rank.cuda.synchronize(rank.stream);
    (void)rank.capture([&] {
      EXPECT_THAT(error_of<UnsupportedError>([&] { window->put(tensor); }),
                  AllOf(HasSubstr("window 'w', win_put: its stream captures a CUDA graph"),
                        HasSubstr("calls of windows cannot be part of one")));
      rank.cuda.copy(other.data, tensor.data, tensor.bytes(), rank.stream);
    });
    meet(rank.context);
    window->put(tensor);
    ops::barrier(rank.context);
    window->free();
  });
}

TEST_P(DeviceWindowPeer, OfARankThatHasDestroyedIt) {
  on_device_ranks(two_or_three(), [](DeviceRank& rank) {
    const BufferView tensor = tensor_of(rank);
    auto window = window_of(rank, tensor);
    if (rank.context.rank() == 0) {
      window.reset();
    }
    meet(rank.context);
    if (rank.context.rank() == 1) {
      EXPECT_THROW(window->put(tensor), WindowGoneError);
      EXPECT_THROW(window->get(), WindowGoneError);
      window->update();
    }
    meet(rank.context);
  });
}

}  // namespace
}  // namespace bluefog::testing
