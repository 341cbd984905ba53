// Ranks that are threads here, and meet in a store of torch.
#include "nn/torch_store.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <vector>

#include "bluefog_cpp/context.hpp"
#include "bluefog_cpp/error.hpp"
#include "bluefog_cpp/settings.hpp"
#include "bluefog_cpp/store_bootstrap.hpp"
#include "ops/allreduce.hpp"
#include "tests/support/error_of.hpp"

namespace bluefog::testing {
namespace {

using ::testing::HasSubstr;
using TorchStorePtr = c10::intrusive_ptr<c10d::Store>;

Settings settings_with(std::chrono::milliseconds timeout) {
  Settings settings = Settings::from_environment();
  settings.timeout = timeout;
  return settings;
}

/// The sums that `size` threads get which meet in what `store_of` gives each.
std::vector<float> sums(int size, const std::function<TorchStorePtr(int rank)>& store_of) {
  std::vector<float> found(static_cast<std::size_t>(size));
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.emplace_back([&, rank] {
      auto context = Context::create(make_torch_store(store_of(rank)), {.rank = rank, .size = size},
                                     settings_with(std::chrono::seconds(30)));
      auto value = static_cast<float>(rank + 1);
      ops::allreduce(*context, {.data = &value, .count = 1}, {.reduction = ops::Reduction::Sum});
      found[static_cast<std::size_t>(rank)] = value;
    });
  }
  for (std::thread& rank : ranks) {
    rank.join();
  }
  return found;
}

TEST(TorchStore, RanksMeetInAHashStore) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  EXPECT_EQ(sums(3, [&](int) { return store; }), std::vector<float>(3, 6.0F));
}

TEST(TorchStore, RanksMeetInATcpStoreOfTheFirstOne) {
  c10d::TCPStoreOptions options;
  options.port = 0;
  options.isServer = true;
  options.waitWorkers = false;
  const auto first = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  const auto store_of = [&](int rank) -> TorchStorePtr {
    if (rank == 0) {
      return first;
    }
    c10d::TCPStoreOptions others;
    others.port = first->getPort();
    return c10::make_intrusive<c10d::TCPStore>("127.0.0.1", others);
  };
  EXPECT_EQ(sums(2, store_of), std::vector<float>(2, 3.0F));
}

TEST(TorchStore, ARankThatNeverComesIsNamed) {
  EXPECT_THAT(error_of<TimeoutError>([] {
                (void)Context::create(make_torch_store(c10::make_intrusive<c10d::HashStore>()),
                                      {.rank = 0, .size = 2},
                                      settings_with(std::chrono::milliseconds(300)));
              }),
              HasSubstr("rank 1 has not come"));
}

TEST(TorchStore, ItsErrorsAreThoseOfTransports) {
  class Failing final : public c10d::HashStore {
   public:
    bool check(const std::vector<std::string>&) override {
      throw std::runtime_error("the store is gone\nwhere it was seen");
    }
  };
  EXPECT_EQ(error_of<TransportError>([] {
              (void)make_torch_store(c10::make_intrusive<Failing>())->get("key", Deadline());
            }),
            "the store is gone");
  EXPECT_THAT(error_of<InvalidArgument>([] { (void)make_torch_store({}); }),
              HasSubstr("expected a store of torch, found a null pointer"));
}

}  // namespace
}  // namespace bluefog::testing
