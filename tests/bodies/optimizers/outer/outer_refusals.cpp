// Outer steps that do not converge, whose options are out of bounds, or differ between ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "ops/compression.hpp"
#include "tests/bodies/optimizers/outer/outer_runs.hpp"
#include "tests/support/error_of.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::testing {
namespace {

using optimizers::DistributedOptimizer;
using optimizers::DistributedOptimizerOptions;
using ::testing::HasSubstr;

/// Momentum multiplies what a rough code gets wrong: rounds that do not converge are refused.
TEST(OuterRefusals, OfCodesThatAreTooRoughAreRefused) {
  on_ranks(exactly(4), [](Context& context) {
    const Schedule ring = topology::static_schedule(topology::ring(context.size()));
    const auto refusal_with = [&](const std::string& code, Numbers numbers) {
      auto options = outer_options("gossip_diloco", std::move(numbers), ring);
      options.compression = ops::compression_named(code);
      options.num_steps_per_communication = 1;
      try {
        const auto points = run_outer_steps(context, options, Start::Different, 200, 0.0);
        const at::Tensor mean = starting_points(context.size(), Start::Different).mean(0);
        EXPECT_EQ(difference(points.back(), mean, 0.1), "") << code;
        return std::string();
      } catch (const InvalidArgument& error) {
        return std::string(error.what());
      }
    };
    EXPECT_EQ(refusal_with("int4", {}), "");
    EXPECT_EQ(refusal_with("int8", {}), "");
    EXPECT_EQ(refusal_with("bfloat16", {}), "");
    EXPECT_THAT(
        refusal_with("sign", {{"consensus_step_size", 0.2}}),
        HasSubstr("compression sign, outer_momentum 0.9, outer_learning_rate 0.7, "
                  "consensus_step_size 0.2: gossip_diloco expects differences between ranks "
                  "to die out"));
    EXPECT_THAT(refusal_with("topk", {{"consensus_step_size", 0.2}}), HasSubstr("a factor of 1."));
    EXPECT_THAT(refusal_with("float16", {{"consensus_step_size", 1.5}}), HasSubstr("a factor of"));
    auto options = outer_options("gossip_diloco", {},
                                 topology::static_schedule(unbalanced_graph(4).transposed()));
    options.compression = ops::compression_named("int8");
    EXPECT_THAT(error_of<InvalidArgument>([&] { run_outer_steps(context, options); }),
                HasSubstr("gossip_diloco with a compression expects weights of at least 0, rows"));
    Bag bag;
    bag.add("x", at::ones({3}, at::kBFloat16));
    torch::optim::SGD sgd(bag.parameters(), 0.1);
    options.schedule = ring;
    EXPECT_THAT(error_of<UnsupportedError>([&] {
                  const DistributedOptimizer optimizer(context.shared_from_this(), sgd, bag,
                                                       options);
                }),
                HasSubstr("compression int8: expected parameters of float32 or float64"));
  });
}

TEST(OuterRefusals, OfCodesExpectLinksThatComeAgain) {
  on_ranks(some_ranks(2), [](Context& context) {
    auto options = outer_options("gossip_diloco");
    options.compression = ops::compression_named("int4");
    EXPECT_THAT(error_of<InvalidArgument>([&] { run_outer_steps(context, options); }),
                HasSubstr("gossip_diloco with a compression expects at most 64 matrices"));
    options.plans = [&](std::int64_t /*round*/) {
      return NeighborPlan::alone(context.rank(), context.size());
    };
    EXPECT_THAT(error_of<InvalidArgument>([&] { run_outer_steps(context, options); }),
                HasSubstr("gossip_diloco with a compression expects a schedule"));
    options = outer_options("noloco");
    options.compression = ops::compression_named("int4");
    EXPECT_THAT(error_of<InvalidArgument>([&] { run_outer_steps(context, options); }),
                HasSubstr("diloco, gossip_diloco or sparse_loco, found noloco"));
  });
}

TEST(OuterRefusals, UnderWhichDifferencesStayAreRefused) {
  on_ranks(some_ranks(2), [](Context& context) {
    const auto why = [&](const DistributedOptimizerOptions& options) {
      return error_of<InvalidArgument>([&] { run_outer_steps(context, options); });
    };
    // The schedules are the algorithms' own.
    if (context.size() >= 8) {
      EXPECT_THAT(why(outer_options("noloco", {{"outer_momentum", 0.95}})),
                  HasSubstr("outer_momentum 0.95, outer_learning_rate 0.7: noloco expects "
                            "differences between ranks to die out over what it averages with where "
                            "there are no gradients, found that they grow by a factor of 1."));
      EXPECT_THAT(
          why(outer_options("accelerated_gossip", {{"acceleration", 0.95}})),
          HasSubstr("acceleration 0.95, consensus_step_size 1: accelerated_gossip expects"));
    }
    for (const char* name : {"diloco", "streaming_diloco", "gossip_diloco"}) {
      EXPECT_THAT(why(outer_options(name, {{"outer_learning_rate", 1.9}})),
                  HasSubstr("outer_learning_rate 1.9: "))
          << name;
      EXPECT_THAT(why(outer_options(name, {{"outer_learning_rate", 0.0}})),
                  HasSubstr("stay as large as they are; use smaller ones, but a rate above 0"))
          << name;
    }
    EXPECT_THAT(why(outer_options("slowmo", {{"outer_learning_rate", 3.5}})),
                HasSubstr("outer_momentum 0.5, outer_learning_rate 3.5: slowmo expects"));
    if (context.size() == 3) {  // roots on the unit circle
      EXPECT_THAT(why(outer_options(
                      "noloco", {},
                      topology::static_schedule(topology::ring(3, topology::RingStyle::Right)))),
                  HasSubstr("stay as large as they are"));
    }
  });
}

TEST(OuterRefusals, OutOfBoundsAreRefused) {
  on_ranks(some_ranks(2), [](Context& context) {
    const auto why = [&](const DistributedOptimizerOptions& options) {
      return error_of<InvalidArgument>([&] { run_outer_steps(context, options); });
    };
    EXPECT_THAT(why(outer_options("diloco", {{"outer_momentum", 1.0}})),
                HasSubstr("outer_momentum: expected from 0 to below 1, found 1"));
    EXPECT_THAT(why(outer_options("noloco", {{"outer_learning_rate", 1e300}})),
                HasSubstr("outer_learning_rate: expected from 0 to below 10"));
    EXPECT_THAT(why(outer_options("streaming_diloco", {{"fragments", 2.5}})),
                HasSubstr("fragments: expected a whole number, found 2.5"));
    EXPECT_THAT(
        why(outer_options("streaming_diloco",
                          {{"fragments", 1}, {"local_share", 0.0}, {"delay_steps", kInner}})),
        HasSubstr("expects fewer steps than num_steps_per_communication (3)"));
    EXPECT_THAT(why(outer_options("diloco", {{"consensus_step_size", 1.0}})),
                HasSubstr("numbers: expected options of diloco, outer_learning_rate, "));
    EXPECT_THAT(why(outer_options("gossip_diloco", {{"consensus_step_size", 0.5}})),
                HasSubstr("consensus_step_size: expected a compression, whose it is, found none"));
  });
}

/// An option left out is its default; another one on one rank alone is named.
TEST(OuterRefusals, WithOtherOptionsOnARankAreRefused) {
  on_ranks(some_ranks(2), [](Context& context) {
    const bool is_first = context.rank() == 0;
    run_outer_steps(
        context, outer_options("diloco", is_first ? Numbers{{"outer_momentum", 0.9}} : Numbers{}));
    EXPECT_THAT(error_of<MismatchError>([&] {
                  run_outer_steps(
                      context, outer_options("diloco", is_first ? Numbers{{"outer_momentum", 0.1}}
                                                                : Numbers{}));
                }),
                AllOf(HasSubstr("outer_momentum 0.1"), HasSubstr("outer_momentum 0.9")));
    auto options = outer_options("diloco");
    options.num_steps_per_communication = is_first ? 3 : 4;
    EXPECT_THAT(error_of<MismatchError>([&] { run_outer_steps(context, options); }),
                HasSubstr("num_steps_per_communication 3"));
  });
}

}  // namespace
}  // namespace bluefog::testing
