// NCCL's own calls behind the table: how a communicator goes on without some of its ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "bluefog_cpp/context/context_core.hpp"
#include "bluefog_cpp/deadline.hpp"
#include "bluefog_cpp/device/cuda/shared_object.hpp"
#include "bluefog_cpp/error.hpp"
#include "tests/cuda/gpu.hpp"
#include "tests/support/ranks.hpp"

namespace bluefog::testing {
namespace {

/// A result code of nccl.h.
constexpr int kNcclInProgress = 7;

/// A rank of a communicator, all of whose ranks have talked to each other.
struct NcclRank {
  Context& context;
  gpu::NcclApi& nccl;
  gpu::CommHandle comm;
  Gpu gpu;

  /// The ranks in the context that every rank of `with` tells every other.
  std::vector<int> exchange(gpu::CommHandle with, int size) {
    const Values own(Dtype::UInt8, std::array{static_cast<double>(context.rank())});
    const BufferView sent = gpu.upload(own);
    const BufferView heard = gpu.upload(Values(Dtype::UInt8, static_cast<std::size_t>(size)));
    nccl.group_start();
    for (int peer = 0; peer < size; ++peer) {
      nccl.send(sent.data, 1, peer, with, gpu.stream());
      nccl.receive(static_cast<std::byte*>(heard.data) + peer, 1, peer, with, gpu.stream());
    }
    nccl.group_end();
    const std::vector<double> ranks = gpu.download(heard).to_doubles();
    return {ranks.begin(), ranks.end()};
  }
};

/// A parameter makes these tests run after those of calls: NCCL may hang here.
class NcclLibrary : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (!why_no_gpu().empty()) {
      GTEST_SKIP() << why_no_gpu();
    }
    try {
      nccl_ = gpu::load_nccl();
    } catch (const UnsupportedError& error) {
      GTEST_SKIP() << error.what();
    }
  }

  /// Runs `body` as every rank; skips if NCCL does not serve them, or throws an UnsupportedError.
  void on_comms(const std::function<void(NcclRank&)>& body) {
    const Ranks ranks{.at_least = 2, .at_most = 4, .layouts = {Layout::OneHost}};
    on_ranks(ranks, [&](Context& context) {
      const auto deadline = Deadline::after(std::chrono::minutes(1));
      gpu::NcclId id{};
      if (context.rank() == 0) {
        id = nccl_->make_id();
      }
      std::ranges::copy(context.core().bootstrap().allgather(id, deadline).front(), id.begin());
      NcclRank rank{
          .context = context, .nccl = *nccl_, .comm = nullptr, .gpu = Gpu(context.rank())};
      try {
        rank.comm = nccl_->init(context.size(), id, context.rank());
      } catch (const NcclError& error) {
        GTEST_SKIP() << error.what();
      }
      std::vector<int> everyone;
      for (int r = 0; r < context.size(); ++r) {
        everyone.push_back(r);
      }
      EXPECT_EQ(rank.exchange(rank.comm, context.size()), everyone);
      meet(context);
      try {
        body(rank);
      } catch (const UnsupportedError& error) {
        [&] { GTEST_SKIP() << error.what(); }();
      }
      meet(context);
      nccl_->destroy(rank.comm);
    });
  }

  /// The last rank is left out: the others get a communicator of theirs, in their order.
  static void go_on_without_the_last(NcclRank& rank) {
    const int last = rank.context.size() - 1;
    const gpu::CommHandle shrunk = rank.nccl.shrink(rank.comm, std::array{last});
    std::vector<int> left;
    for (int r = 0; r < last; ++r) {
      left.push_back(r);
    }
    EXPECT_EQ(rank.exchange(shrunk, last), left);
    rank.nccl.destroy(shrunk);
  }

  std::shared_ptr<gpu::NcclApi> nccl_;
};

INSTANTIATE_TEST_SUITE_P(Nccl, NcclLibrary, ::testing::Values(0));

TEST_P(NcclLibrary, ShrinksToTheRanksThatAreLeft) {
  on_comms([](NcclRank& rank) {
    if (rank.context.rank() != rank.context.size() - 1) {
      go_on_without_the_last(rank);
    }
  });
}

/// The other ranks wait for a message that the last rank never sends.
TEST_P(NcclLibrary, RevokesWhatIsUnderWayAndShrinks) {
  void (*revoke)() = nullptr;
  gpu::SharedObject("libnccl.so.2").bind_if_there(revoke, "ncclCommRevoke");
  if (revoke == nullptr) {
    GTEST_SKIP() << "this NCCL has no ncclCommRevoke";  // nothing else ends what is under way
  }
  on_comms([](NcclRank& rank) {
    const int last = rank.context.size() - 1;
    if (rank.context.rank() == last) {
      return;
    }
    const BufferView heard = rank.gpu.upload(Values(Dtype::UInt8, std::size_t{1}));
    rank.nccl.receive(heard.data, 1, last, rank.comm, rank.gpu.stream());
    rank.nccl.revoke(rank.comm);
    int (*state_of)(void* comm, int* state) = nullptr;
    gpu::SharedObject("libnccl.so.2").bind(state_of, "ncclCommGetAsyncError");
    const auto deadline = Deadline::after(std::chrono::seconds(30));
    int state = kNcclInProgress;
    while (state_of(rank.comm, &state) == 0 && state == kNcclInProgress && !deadline.expired()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ASSERT_EQ(state, 0);
    rank.gpu.synchronize();
    go_on_without_the_last(rank);
  });
}

}  // namespace
}  // namespace bluefog::testing
