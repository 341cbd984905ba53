// Calls that cannot be captured in a CUDA graph and the end of captured ones, on stand-ins: each
// refusal comes before anything moves, and leaves the capture whole.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <thread>

#include "bluefog_cpp/error.hpp"
#include "ops/collectives.hpp"
#include "ops/hierarchical_neighbor_allreduce.hpp"
#include "ops/neighbor_allreduce.hpp"
#include "ops/pair_gossip.hpp"
#include "ops/window.hpp"
#include "tests/fabric/device/bodies.hpp"
#include "tests/fabric/device/plans.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/gpu/device_ranks.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Graph = std::shared_ptr<CapturedGraph>;

const ops::NeighborAllreduceOptions kOnWait{.completion = ops::Completion::OnWait};

/// Calls after a refusal are captured as if there had been none.
void expect_capture_goes_on(DeviceRank& rank, const BufferView& own) {
  ops::neighbor_allreduce(rank.context, own, ring(rank.context));
}

void expect_one_call(DeviceRank& rank, const Graph& graph, const BufferView& own, Values values) {
  rank.cuda.replay(graph, rank.stream);
  ops::neighbor_allreduce(rank.context, values.view(), ring(rank.context));
  EXPECT_EQ(rank.download(own), values);
  EXPECT_EQ(graph->count_of("cuMemcpyAsync"), 0);
  meet(rank.context);
  expect_device_usable(rank);
}

TEST(DeviceCaptureMismatch, OneRankCapturesAndAnotherDoesNot) {
  on_device_ranks({.at_least = 2, .at_most = 4}, [](DeviceRank& rank) {
    const Values values = thirds(Dtype::Float32, 6, rank.context.rank());
    const BufferView own = rank.upload(values);
    for (const auto& options : {ops::NeighborAllreduceOptions{}, kOnWait}) {
      const bool captures = rank.context.rank() != 0;
      meet(rank.context);
      if (captures) {
        rank.cuda.begin_capture(rank.stream);
      }
      const int groups = rank.cuda.counts()["nccl group"];
      const auto call = [&] {
        ops::neighbor_allreduce_nonblocking(rank.context, own, ring(rank.context), options).wait();
        ops::barrier(rank.context);  // at the latest
      };
      // Others than the two ends hear of it from these.
      const std::string text =
          rank.context.size() == 2 ? error_of<MismatchError>(call) : error_of<Error>(call);
      EXPECT_THAT(text, AllOf(HasSubstr("neighbor_allreduce(float32[6] on CUDA)"),
                              HasSubstr("neighbor_allreduce(float32[6] on CUDA, in a capture)")));
      if (captures) {
        const Graph graph = rank.cuda.end_capture(rank.stream);
        EXPECT_EQ(graph->count_of("nccl group"), 0);
      }
      meet(rank.context);
      EXPECT_EQ(rank.cuda.counts()["nccl group"], groups);
      meet(rank.context);
    }
    EXPECT_EQ(rank.download(own), values);
    meet(rank.context);
    expect_device_usable(rank);
  });
}

TEST(DeviceCaptureMismatch, CountsThatDiffer) {
  on_device_ranks({.at_least = 2, .at_most = 2}, [](DeviceRank& rank) {
    const Values values = thirds(Dtype::Float32, 6, rank.context.rank());
    const BufferView own = rank.upload(values);
    BufferView part = own;
    part.count -= rank.context.rank();
    const Graph graph = rank.capture([&] {
      EXPECT_THAT(error_of<MismatchError>([&] {
                    ops::neighbor_allreduce(rank.context, part, ring(rank.context));
                    ops::barrier(rank.context);
                  }),
                  AllOf(HasSubstr("float32[5] on CUDA, in a capture"),
                        HasSubstr("float32[6] on CUDA, in a capture")));
      meet(rank.context);
      expect_capture_goes_on(rank, own);
    });
    expect_one_call(rank, graph, own, values);
  });
}

/// An edge that one end knows of is found when some ranks have captured their part: all of them
/// hear of it all the same, and the capture goes on.
TEST(DeviceCaptureMismatch, AnEdgeOfOneEnd) {
  on_device_ranks({.at_least = 2, .at_most = 4}, [](DeviceRank& rank) {
    const int own_rank = rank.context.rank();
    const int n = rank.context.size();
    const Values values = thirds(Dtype::Float32, 60, own_rank);
    const BufferView own = rank.upload(values);
    auto wrong = std::make_shared<NeighborPlan>(NeighborPlan::alone(own_rank, n));
    if (own_rank == 0) {
      wrong->destinations = {{1, 1.0}};
    } else if (n == 4 && own_rank > 1) {
      wrong->sources = {{5 - own_rank, 0.5}};
      wrong->destinations = {{5 - own_rank, 1.0}};
    }
    const Graph graph = rank.capture([&] {
      const std::string text =
          error_of<Error>([&] { ops::neighbor_allreduce(rank.context, own, wrong); });
      EXPECT_THAT(text, HasSubstr("senders and receivers of that call do not match"));
      meet(rank.context);
      expect_capture_goes_on(rank, own);
    });
    // Nothing else comes that would join its streams.
    (void)rank.capture([&] {
      EXPECT_THROW(ops::neighbor_allreduce(rank.context, own, wrong), Error);
      meet(rank.context);
    });
    // The calls captured before are a transfer between ranks 2 and 3 and a sum.
    EXPECT_EQ(graph->count_of("nccl group"), n == 4 && own_rank > 1 ? 2 : 1);
    meet(rank.context);
    expect_device_usable(rank);
  });
}

TEST(DeviceCaptureRefusal, CallsThroughTheHost) {
  const auto allreduce_by_host = [](Settings& settings) { settings.allreduce_by_mpi = true; };
  on_device_ranks(
      {.at_least = 2, .at_most = 3, .settings = allreduce_by_host}, [](DeviceRank& rank) {
        const Values values = thirds(Dtype::Float32, 6, rank.context.rank());
        const BufferView own = rank.upload(values);
        const Plan plan = ring(rank.context);
        const auto window = ops::Window::create(rank.context, own, *plan);
        const std::string begin = "rank " + std::to_string(rank.context.rank()) + ", ";
        const auto is_refusal_of = [&](const std::string& call) {
          return AllOf(HasSubstr(begin), HasSubstr(call + ": "), HasSubstr("captures a CUDA graph"),
                       HasSubstr("through the host's memory"));
        };
        const Graph graph = rank.capture([&] {
          EXPECT_THAT(error_of<UnsupportedError>([&] { ops::allreduce(rank.context, own); }),
                      is_refusal_of("allreduce"));
          if (rank.context.rank() < 2) {
            EXPECT_THAT(error_of<UnsupportedError>(
                            [&] { ops::pair_gossip(rank.context, own, 1 - rank.context.rank()); }),
                        is_refusal_of("pair_gossip"));
          }
          EXPECT_THAT(error_of<UnsupportedError>([&] { window->put(own); }),
                      is_refusal_of("win_put"));
          EXPECT_THAT(error_of<UnsupportedError>([&] { window->update(); }),
                      is_refusal_of("win_update"));
          EXPECT_THAT(error_of<UnsupportedError>([&] { window->publish(); }),
                      is_refusal_of("win_publish"));
          expect_capture_goes_on(rank, own);
        });
        meet(rank.context);
        window->free();
        rank.cuda.replay(graph, rank.stream);
        Values expected = values;
        ops::neighbor_allreduce(rank.context, expected.view(), plan);
        EXPECT_EQ(rank.download(own), expected);
      });
}

TEST(DeviceCaptureRefusal, WithoutNccl) {
  for (const Reach reach : {Reach::Host, Reach::PeerThreads}) {
    on_device_ranks({.at_least = 2, .at_most = 2, .reach = reach}, [](DeviceRank& rank) {
      const BufferView own = rank.upload(thirds(Dtype::Float32, 6, rank.context.rank()));
      const Graph graph = rank.capture([&] {
        EXPECT_THAT(error_of<UnsupportedError>([&] {
                      ops::neighbor_allreduce(rank.context, own, ring(rank.context), kOnWait);
                    }),
                    AllOf(HasSubstr("neighbor_allreduce"), HasSubstr("captures a CUDA graph")));
      });
      EXPECT_TRUE(graph->steps.empty());
    });
  }
}

/// Machines of 2 and of 1 rank.
TEST(DeviceCaptureRefusal, UnequalMachines) {
  on_device_ranks(
      {.at_least = 3, .at_most = 3, .layouts = {Layout::TwoHosts}}, [](DeviceRank& rank) {
        const auto& machines = rank.context.machines();
        const auto plan = std::make_shared<const NeighborPlan>(
            topology::ring(machines.machine_count())
                .plan_for(machines.machine_of(rank.context.rank())));
        const BufferView own = rank.upload(thirds(Dtype::Float32, 6, 0));
        const Graph graph = rank.capture([&] {
          EXPECT_THAT(error_of<UnsupportedError>(
                          [&] { ops::hierarchical_neighbor_allreduce(rank.context, own, plan); }),
                      HasSubstr("hierarchical_neighbor_allreduce"));
        });
        EXPECT_TRUE(graph->steps.empty());
      });
}

/// The other rank, whose call runs, hears why.
TEST(DeviceCaptureRefusal, ReachesTheOther) {
  const auto by_host = [](Settings& settings) { settings.allreduce_by_mpi = true; };
  on_device_ranks({.at_least = 2, .at_most = 2, .settings = by_host}, [](DeviceRank& rank) {
    const BufferView own = rank.upload(small_integers(Dtype::Float32, 6, 0));
    meet(rank.context);
    if (rank.context.rank() == 0) {
      rank.cuda.begin_capture(rank.stream);
      EXPECT_THROW(ops::allreduce(rank.context, own), UnsupportedError);
      EXPECT_TRUE(rank.cuda.end_capture(rank.stream)->steps.empty());
    } else {
      EXPECT_THAT(error_of<PeerFailure>([&] { ops::allreduce(rank.context, own); }),
                  HasSubstr("captures a CUDA graph"));
    }
    meet(rank.context);
    expect_device_usable(rank);
  });
}

TEST(DeviceCaptureRefusal, OneStreamOfTwo) {
  on_device_ranks({.at_least = 2, .at_most = 2}, [](DeviceRank& rank) {
    const Values values = thirds(Dtype::Float32, 6, rank.context.rank());
    const BufferView own = rank.upload(values);
    const BufferView output = rank.upload(values, rank.cuda.make_stream());
    const Graph graph = rank.capture([&] {
      EXPECT_THAT(error_of<StateError>([&] {
                    ops::neighbor_allreduce(rank.context, own, output, ring(rank.context));
                  }),
                  HasSubstr("in the same capture"));
      expect_capture_goes_on(rank, own);
    });
    expect_one_call(rank, graph, own, values);
  });
}

/// Graphs that were captured elsewhere, or not at all.
TEST(DeviceCaptureRefusal, Waits) {
  on_device_ranks({.at_least = 2, .at_most = 4}, [](DeviceRank& rank) {
    const Plan plan = ring(rank.context);
    const Values values = thirds(Dtype::Float32, 6, rank.context.rank());
    const BufferView own = rank.upload(values);
    const BufferView other = rank.upload(values);
    const Work before = ops::neighbor_allreduce_nonblocking(rank.context, other, plan);
    const Work held_before =
        ops::neighbor_allreduce_nonblocking(rank.context, other, plan, kOnWait);
    const gpu::StreamHandle outside = rank.cuda.make_stream();
    const BufferView beside = rank.upload(values, outside);
    const Work on_another = ops::neighbor_allreduce_nonblocking(rank.context, beside, plan);
    Work captured;
    const Graph graph = rank.capture([&] {
      for (const Work* const work : {&before, &held_before}) {
        EXPECT_THAT(error_of<StateError>([&] { work->wait(); }), HasSubstr("before the capture"));
        EXPECT_THROW(work->synchronize(), StateError);
      }
      EXPECT_THAT(error_of<StateError>([&] { on_another.wait(rank.stream); }),
                  HasSubstr("before the capture"));
      captured = ops::neighbor_allreduce_nonblocking(rank.context, own, plan);
      EXPECT_THAT(error_of<StateError>([&] { captured.wait(outside); }),
                  HasSubstr("in the capture that it is part of"));
      EXPECT_THAT(error_of<StateError>([&] { captured.synchronize(); }),
                  HasSubstr("nothing of it runs before the graph is launched"));
      captured.wait();
      captured.wait();
    });
    for (const bool synchronizes : {false, true}) {
      EXPECT_THROW(synchronizes ? captured.synchronize() : captured.wait(), StateError);
    }
    before.synchronize();
    held_before.synchronize();
    on_another.wait(rank.stream);
    expect_one_call(rank, graph, own, values);
  });
}

TEST(DeviceCaptureRefusal, WaitsForACallThroughTheHost) {
  on_device_ranks({.at_least = 2, .at_most = 2}, [](DeviceRank& rank) {
    const Values values = thirds(Dtype::Float32, 6, rank.context.rank());
    const BufferView own = rank.upload(values);
    const BufferView other = rank.upload(values);
    const Work before =
        ops::pair_gossip_nonblocking(rank.context, other, other, 1 - rank.context.rank());
    const Graph graph = rank.capture([&] {
      EXPECT_THAT(error_of<StateError>([&] { before.wait(); }),
                  AllOf(HasSubstr("pair_gossip(float32[6]"), HasSubstr("before the capture")));
      EXPECT_THROW(before.synchronize(), StateError);
      expect_capture_goes_on(rank, own);
    });
    before.synchronize();
    expect_one_call(rank, graph, own, values);
  });
}

/// NCCL's communicator ends after the last graph; the context's end does not wait for that.
TEST(DeviceCaptureEnd, GraphsThatOutliveTheContext) {
  on_device_ranks({.at_most = 3, .expect_usable = false}, [](DeviceRank& rank) {
    const BufferView own = rank.upload(thirds(Dtype::Float32, 600, rank.context.rank()));
    Graph graph = rank.capture([&] { expect_capture_goes_on(rank, own); });
    rank.cuda.replay(graph, rank.stream);
    rank.cuda.synchronize(rank.stream);
    meet(rank.context);
    const int freed = rank.cuda.counts()["cuMemFree"];
    meet(rank.context);
    const auto begun = std::chrono::steady_clock::now();
    rank.context.close();
    EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(20));
    meet(rank.context);
    const auto communicators = [&] { return rank.cuda.counts()["ncclCommDestroy"]; };
    if (rank.context.size() > 1) {
      EXPECT_EQ(communicators(), 0);
      EXPECT_EQ(rank.cuda.counts()["cuMemFree"], freed);  // replays may still use it
    }
    meet(rank.context);
    graph.reset();
    while (communicators() < rank.context.size()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
}

TEST(DeviceCaptureEnd, TheContextOutlivesItsGraphs) {
  on_device_ranks({.at_most = 3, .expect_usable = false}, [](DeviceRank& rank) {
    const BufferView own = rank.upload(thirds(Dtype::Float32, 600, rank.context.rank()));
    Graph graph = rank.capture([&] { expect_capture_goes_on(rank, own); });
    rank.cuda.replay(graph, rank.stream);
    graph.reset();  // with the replay under way
    ops::neighbor_allreduce(rank.context, own, ring(rank.context));
    rank.cuda.synchronize(rank.stream);
    meet(rank.context);
    rank.context.close();
    EXPECT_GT(rank.cuda.counts()["ncclCommDestroy"], 0);
  });
}

/// The end of the channel does not wait for graphs either.
TEST(DeviceCaptureEnd, TheChannelEnds) {
  on_device_ranks({.at_least = 2, .at_most = 3}, [](DeviceRank& rank) {
    const BufferView own = rank.upload(thirds(Dtype::Float32, 600, rank.context.rank()));
    const Graph graph = rank.capture([&] { expect_capture_goes_on(rank, own); });
    rank.shut(rank.stream);
    const Work work = ops::neighbor_allreduce_nonblocking(rank.context, own, ring(rank.context));
    meet(rank.context);
    rank.nccl.set_async_error(rank.context.rank(), "the network is gone");
    EXPECT_THAT(error_of<Error>([&] {
                  while (true) {
                    work.wait();
                    std::this_thread::sleep_for(std::chrono::milliseconds(1));
                  }
                }),
                HasSubstr("the network is gone"));
    EXPECT_THROW(ops::neighbor_allreduce(rank.context, own, ring(rank.context)), StateError);
    rank.open();
    meet(rank.context);
  });
}

/// A capture that is not ended in order, by whatever mistake of the user's, leaves calls as they
/// were.
TEST(DeviceCaptureEnd, ACallThatNobodyWaitsFor) {
  on_device_ranks({.at_least = 2, .at_most = 2, .expect_mistakes = true}, [](DeviceRank& rank) {
    const Values values = thirds(Dtype::Float32, 6, rank.context.rank());
    const BufferView own = rank.upload(values);
    meet(rank.context);
    rank.cuda.begin_capture(rank.stream);
    (void)ops::neighbor_allreduce_nonblocking(rank.context, own, ring(rank.context));
    EXPECT_THAT(error_of<CudaError>([&] { (void)rank.cuda.end_capture(rank.stream); }),
                HasSubstr("not joined"));
    const Graph graph = rank.capture([&] { expect_capture_goes_on(rank, own); });
    expect_one_call(rank, graph, own, values);
  });
}

}  // namespace
}  // namespace bluefog::testing
