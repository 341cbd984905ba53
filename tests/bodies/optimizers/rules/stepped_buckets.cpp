// Every step of an algorithm steps each bucket once, in their order; anything else is an error.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "optimizers/algorithm.hpp"
#include "optimizers/algorithm_row.hpp"
#include "optimizers/distributed_optimizer.hpp"
#include "tests/bodies/optimizers/support.hpp"
#include "tests/support/error_of.hpp"

namespace bluefog::testing {
namespace {

using optimizers::AlgorithmParts;
using optimizers::AlgorithmRow;
using optimizers::Bucket;
using optimizers::DistributedOptimizer;
using optimizers::StepBucket;
using ::testing::HasSubstr;

/// Steps the buckets with these numbers, and averages nothing.
class GivenBuckets final : public optimizers::Algorithm {
 public:
  GivenBuckets(std::vector<Bucket>& buckets, std::vector<std::size_t> numbers)
      : Algorithm(buckets), numbers_(std::move(numbers)) {}

  [[nodiscard]] std::size_t calls_due() const override { return 0; }
  void step(const optimizers::Round& /*round*/, const StepBucket& step_bucket) override {
    for (const std::size_t b : numbers_) {
      step_bucket(buckets_[b]);
    }
  }

 private:
  std::vector<std::size_t> numbers_;
};

void register_given(const std::string& name, const std::vector<std::size_t>& numbers) {
  if (optimizers::find_algorithm(name) == nullptr) {
    AlgorithmRow row;
    row.name = name;
    row.equation = "x ← x";
    row.description = "Steps some buckets.";
    row.source = "this test";
    row.make = [numbers](AlgorithmParts parts) {
      return std::make_unique<GivenBuckets>(parts.buckets, numbers);
    };
    optimizers::register_algorithm(row);
  }
}

std::string error_of_step(Context& context, const std::string& name) {
  const Point point(0);  // of three buckets
  torch::optim::SGD sgd(point.parameters(), 0.1);
  DistributedOptimizer optimizer(context.shared_from_this(), sgd, point,
                                 {.algorithm = name, .bucket_bytes = 32});
  return error_of<StateError>([&] { optimizer.step(); });
}

TEST(StepContract, BucketsAreSteppedOnceInTheirOrder) {
  register_given("forgets_all", {});
  register_given("forgets_last", {0, 1});
  register_given("steps_twice", {0, 0, 1, 2});
  register_given("steps_backwards", {2, 1, 0});
  on_ranks({.at_most = 2, .layouts = {Layout::OneHost}}, [](Context& context) {
    EXPECT_THAT(error_of_step(context, "forgets_all"),
                HasSubstr("step: expected forgets_all to step each of its 3 buckets, found that it "
                          "has stepped 0"));
    EXPECT_THAT(error_of_step(context, "forgets_last"), HasSubstr("found that it has stepped 2"));
    EXPECT_THAT(error_of_step(context, "steps_twice"),
                HasSubstr("to step each of its 3 buckets once, in their order, found bucket 0 "
                          "after 1 of them"));
    EXPECT_THAT(error_of_step(context, "steps_backwards"),
                HasSubstr("found bucket 2 after 0 of them"));
  });
}

}  // namespace
}  // namespace bluefog::testing
