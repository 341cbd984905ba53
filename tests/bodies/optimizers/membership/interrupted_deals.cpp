// Samples that some ranks have dealt anew, and others not: a rank was lost in between.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "bluefog_cpp/context.hpp"
#include "bluefog_cpp/error.hpp"
#include "ops/collectives.hpp"
#include "optimizers/elastic_sampler.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/ranks.hpp"

namespace bluefog::testing {
namespace {

using optimizers::ElasticSampler;

constexpr std::int64_t kDealtSamples = 203;
constexpr std::int64_t kDealtBatch = 5;
constexpr int kBatchesBefore = 4;
constexpr int kDealers = 3;
constexpr int kLostDealer = 2;

/// Who has dealt anew in the meeting within which rank 2 is lost, beside that rank.
struct Interruption {
  bool rank_0 = false;
  bool rank_1 = false;
  bool newcomer = false;
  bool is_begun = false;  ///< they draw from it before they hear of the loss
};

/// What the ranks that are left have drawn.
class Drawn {
 public:
  void add(int rank, const std::vector<std::int64_t>& batch) {
    const std::lock_guard lock(mutex_);
    all_.insert(all_.end(), batch.begin(), batch.end());
    batches_[static_cast<std::size_t>(rank)] += batch.empty() ? 0 : 1;
  }
  /// Each sample, and few of them twice; and all make as many steps.
  void expect_all(const Interruption& how) const {
    std::vector<int> times(kDealtSamples);
    for (const std::int64_t sample : all_) {
      ++times[static_cast<std::size_t>(sample)];
    }
    for (std::size_t sample = 0; sample < times.size(); ++sample) {
      EXPECT_GT(times[sample], 0) << "sample " << sample;
    }
    EXPECT_LT(std::ssize(all_), kDealtSamples + 2 * kDealers);
    EXPECT_EQ(batches_[0], batches_[1]);
    // Where both others hold a batch of the next step already, a process that has none is one behind.
    const bool is_behind = how.is_begun && how.rank_0 && how.rank_1 && !how.newcomer;
    EXPECT_EQ(batches_[0], batches_[2] + kBatchesBefore + (is_behind ? 1 : 0));
  }

 private:
  std::mutex mutex_;
  std::vector<std::int64_t> all_;
  std::vector<int> batches_ = std::vector<int>(kDealers);
};

/// A newcomer that waits long for a core answers too late for a meeting, and comes in the next.
std::shared_ptr<Context> with_newcomer(Context& context) {
  std::shared_ptr<Context> group;
  for (Context* now = &context; !group || group->size() <= kDealers; now = group.get()) {
    while (!now->is_applicant() && !now->has_applicants()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      now->resync();
    }
    group = now->regroup();
  }
  return group;
}

std::shared_ptr<Context> without_lost_rank(Context& context) {
  (void)error_of<RankLostError>([&] {
    while (true) {
      ops::barrier(context);
    }
  });
  return context.shrink();
}

void expect_even_deal_after(const Interruption& how) {
  SCOPED_TRACE(::testing::Message() << how.rank_0 << how.rank_1 << how.newcomer << how.is_begun);
  Drawn drawn;
  const auto body = [&](Context& context) {
    const bool joins = context.is_applicant();
    const int place = joins ? kLostDealer : context.rank();
    const bool deals = joins ? how.newcomer : (place == 0 ? how.rank_0 : how.rank_1);
    ElasticSampler sampler(kDealtSamples, context);
    ElasticSampler untold(kDealtSamples, context);
    for (int i = 0; !joins && i < kBatchesBefore; ++i) {
      const auto batch = sampler.next(kDealtBatch);
      EXPECT_EQ(untold.next(kDealtBatch), batch);
      if (place != kLostDealer) {
        drawn.add(place, batch);
      }
    }
    const auto group = with_newcomer(context);
    EXPECT_EQ(group->size(), kDealers + 1);
    sampler.deal_anew(*group);
    if (place == kLostDealer && !joins) {
      group->close();
      return;
    }
    ElasticSampler& own = deals ? sampler : untold;
    if (deals && how.is_begun) {
      drawn.add(place, own.next(kDealtBatch));
    }
    const auto smaller = without_lost_rank(*group);
    EXPECT_EQ(smaller->size(), kDealers);
    own.deal_anew(*smaller);
    for (auto batch = own.next(kDealtBatch); !batch.empty(); batch = own.next(kDealtBatch)) {
      drawn.add(place, batch);
    }
    EXPECT_EQ(own.epoch(), 0);
  };
  with_applicants(kDealers, body, 1, body);
  drawn.expect_all(how);
}

TEST(InterruptedDeals, AllGoOnFromTheDealThatAllHave) {
  for (const bool is_begun : {false, true}) {
    for (int which = 0; which < 8; ++which) {
      expect_even_deal_after({.rank_0 = (which & 1) != 0,
                              .rank_1 = (which & 2) != 0,
                              .newcomer = (which & 4) != 0,
                              .is_begun = is_begun});
    }
  }
}

}  // namespace
}  // namespace bluefog::testing
