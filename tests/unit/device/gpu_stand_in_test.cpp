// The stand-in finds the mistakes that it is there to find.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <future>
#include <thread>

#include "bluefog_cpp/error.hpp"
#include "tests/support/gpu/nccl_stand_in.hpp"

namespace bluefog::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Device : public ::testing::Test {
 protected:
  Device() { cuda_->enter(0); }
  ~Device() override { cuda_->leave(); }

  std::shared_ptr<CudaStandIn> cuda_ = std::make_shared<CudaStandIn>(2);
};

TEST_F(Device, AnEventOrdersTwoStreams) {
  auto* const first = cuda_->make_stream();
  auto* const second = cuda_->make_stream();
  auto* const event = cuda_->make_event();
  auto* const memory = static_cast<char*>(cuda_->allocate(64));
  char from[64];
  char to[64];
  std::memset(from, 7, sizeof from);
  std::promise<void> gate;
  cuda_->enqueue(first, "a gate", {}, [opened = gate.get_future().share()] { opened.wait(); });
  cuda_->enqueue(first, "a write", {{memory, 64, true}}, [&] { std::memcpy(memory, from, 64); });
  cuda_->record(event, first);
  cuda_->wait(second, event);
  cuda_->enqueue(second, "a read", {{memory, 64, false}}, [&] { std::memcpy(to, memory, 64); });
  EXPECT_FALSE(cuda_->has_happened(event));
  gate.set_value();
  cuda_->synchronize(second);
  EXPECT_EQ(std::memcmp(from, to, 64), 0);
  EXPECT_THAT(cuda_->mistakes(), IsEmpty());
}

TEST_F(Device, TwoStreamsWithoutAnOrderAreARace) {
  auto* const first = cuda_->make_stream();
  auto* const second = cuda_->make_stream();
  auto* const memory = static_cast<char*>(cuda_->allocate(64));
  cuda_->enqueue(first, "a read", {{memory, 32, false}}, [] {});
  cuda_->enqueue(second, "another read", {{memory, 64, false}}, [] {});
  cuda_->enqueue(second, "a write behind", {{memory + 32, 32, true}}, [] {});
  EXPECT_THAT(cuda_->mistakes(), IsEmpty());
  cuda_->enqueue(second, "a write", {{memory + 31, 1, true}}, [] {});
  EXPECT_THAT(cuda_->mistakes(), ElementsAre(HasSubstr("race: a read and a write")));
}

TEST_F(Device, TheHostOrdersWhatItHasSeenHappen) {
  auto* const first = cuda_->make_stream();
  auto* const second = cuda_->make_stream();
  auto* const memory = cuda_->allocate(64);
  cuda_->enqueue(first, "a write", {{memory, 64, true}}, [] {});
  cuda_->synchronize(first);
  cuda_->enqueue(second, "a write", {{memory, 64, true}}, [] {});
  EXPECT_THAT(cuda_->mistakes(), IsEmpty());
}

TEST_F(Device, MemoryIsGivenBackWhenTheDeviceIsDone) {
  auto* const stream = cuda_->make_stream();
  auto* const memory = cuda_->allocate(64);
  auto* const of_the_host = cuda_->allocate_host(64);
  std::atomic<int> done = 0;
  const auto take_a_while = [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    ++done;
  };
  cuda_->enqueue(stream, "work", {}, take_a_while);
  cuda_->free(memory);
  EXPECT_EQ(done, 1);
  cuda_->enqueue(stream, "work", {}, take_a_while);
  cuda_->free_host(of_the_host);
  EXPECT_EQ(done, 2);
  EXPECT_THAT(cuda_->mistakes(), IsEmpty());
}

TEST_F(Device, MemoryOutsideOfItsBoundsAndItsLife) {
  auto* const stream = cuda_->make_stream();
  auto* const memory = cuda_->allocate(64);
  int on_host = 0;
  cuda_->enqueue(stream, "a long read", {{memory, 65, false}}, [] {});
  cuda_->enqueue(stream, "a host read", {{&on_host, 4, false}}, [] {});
  cuda_->synchronize(stream);
  cuda_->free(memory);
  cuda_->enqueue(stream, "a late read", {{memory, 4, false}}, [] {});
  cuda_->free(memory);
  EXPECT_THAT(cuda_->mistakes(), ElementsAre(HasSubstr("a long read of 65 bytes outside"),
                                             HasSubstr("a host read of 4 bytes outside"),
                                             HasSubstr("a late read uses memory that was freed"),
                                             HasSubstr("free of memory that is not allocated")));
}

TEST_F(Device, MemoryFreedWhileInUse) {
  auto* const stream = cuda_->make_stream();
  auto* const memory = cuda_->allocate(64);
  std::promise<void> gate;
  cuda_->enqueue(stream, "a write", {{memory, 64, true}},
                 [opened = gate.get_future().share()] { opened.wait(); });
  const std::jthread opener([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    gate.set_value();
  });
  cuda_->free(memory);
  EXPECT_THAT(cuda_->mistakes(), ElementsAre(HasSubstr("free of memory that a write still uses")));
}

TEST_F(Device, CallsWithoutADeviceAndInjectedErrors) {
  cuda_->leave();
  (void)cuda_->make_event();
  cuda_->enter(0);
  EXPECT_THAT(cuda_->mistakes(), ElementsAre(HasSubstr("cuEventCreate without a current device")));
  cuda_->fail_next("cuMemAlloc", 0, 2);
  EXPECT_THROW((void)cuda_->allocate(4), CudaError);
  EXPECT_NE(cuda_->allocate(4), nullptr);
  EXPECT_THROW(cuda_->enter(2), CudaError);
}

/// Two ranks on two threads, with a stream each.
class Pair : public Device {
 protected:
  using Body = std::function<void(int rank, gpu::CommHandle comm, gpu::StreamHandle stream)>;

  void on_both(const Body& body) {
    const gpu::NcclId id = nccl_.make_id();
    std::vector<std::jthread> ranks;
    for (int rank = 0; rank < 2; ++rank) {
      ranks.emplace_back([&, rank] {
        cuda_->enter(rank);
        auto* const comm = nccl_.init(2, id, rank);
        body(rank, comm, cuda_->make_stream());
        cuda_->leave();
      });
    }
  }

  NcclStandIn nccl_{cuda_};
};

TEST_F(Pair, BothSendAndReceiveInOneGroup) {
  on_both([&](int rank, gpu::CommHandle comm, gpu::StreamHandle stream) {
    auto* const memory = static_cast<char*>(cuda_->allocate(2));
    cuda_->enqueue(stream, "a write", {{memory, 1, true}},
                   [=] { *memory = static_cast<char>('a' + rank); });
    nccl_.group_start();
    nccl_.send(memory, 1, 1 - rank, comm, stream);
    nccl_.receive(memory + 1, 1, 1 - rank, comm, stream);
    nccl_.group_end();
    cuda_->synchronize(stream);
    EXPECT_EQ(memory[1], 'b' - rank);
    nccl_.destroy(comm);
  });
  EXPECT_THAT(cuda_->mistakes(), IsEmpty());
}

TEST_F(Pair, SizesThatDiffer) {
  on_both([&](int rank, gpu::CommHandle comm, gpu::StreamHandle stream) {
    auto* const memory = cuda_->allocate(8);
    nccl_.group_start();
    if (rank == 0) {
      nccl_.send(memory, 8, 1, comm, stream);
    } else {
      nccl_.receive(memory, 4, 0, comm, stream);
    }
    nccl_.group_end();
    cuda_->synchronize(stream);
    nccl_.destroy(comm);
  });
  EXPECT_THAT(cuda_->mistakes(), ElementsAre(HasSubstr("sent 8 bytes, and rank 1 received 4")));
}

TEST_F(Pair, AbortEndsWhatNobodyAnswers) {
  on_both([&](int rank, gpu::CommHandle comm, gpu::StreamHandle stream) {
    if (rank == 0) {
      auto* const memory = cuda_->allocate(8);
      nccl_.group_start();
      nccl_.receive(memory, 8, 1, comm, stream);
      nccl_.group_end();
      nccl_.abort(comm);
      cuda_->synchronize(stream);
    } else {
      nccl_.destroy(comm);
    }
  });
  EXPECT_THAT(cuda_->mistakes(), IsEmpty());
}

TEST_F(Pair, GroupsMisused) {
  on_both([&](int rank, gpu::CommHandle comm, gpu::StreamHandle stream) {
    if (rank == 0) {
      auto* const memory = cuda_->allocate(8);
      nccl_.send(memory, 8, 1, comm, stream);
      nccl_.group_end();
      nccl_.group_start();
      nccl_.send(memory, 8, 2, comm, stream);
      nccl_.group_end();
      nccl_.group_start();
      nccl_.receive(memory, 8, 1, comm, stream);
      nccl_.group_end();
      nccl_.destroy(comm);
      EXPECT_THROW(nccl_.abort(comm), NcclError);
    } else {
      auto* const memory = cuda_->allocate(8);
      while (cuda_->mistakes().size() < 4) {
        std::this_thread::yield();
      }
      nccl_.group_start();
      nccl_.send(memory, 8, 0, comm, stream);
      nccl_.group_end();
      cuda_->synchronize(stream);
      nccl_.destroy(comm);
    }
  });
  EXPECT_THAT(
      cuda_->mistakes(),
      ElementsAre(HasSubstr("ncclSend outside of a group"), HasSubstr("ncclGroupEnd without"),
                  HasSubstr("there is no rank 2"), HasSubstr("ncclCommDestroy while"),
                  HasSubstr("use of a communicator that is none")));
}

}  // namespace
}  // namespace bluefog::testing
