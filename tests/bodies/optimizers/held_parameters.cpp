// The parameters of a distributed optimizer between its steps, without the optimizer.
#include "optimizers/wrapper/held_parameters.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "tests/bodies/optimizers/support.hpp"
#include "tests/support/error_of.hpp"

namespace bluefog::testing {
namespace {

using optimizers::AlgorithmRow;
using optimizers::Bucket;
using optimizers::HeldParameters;
using optimizers::NamedTensors;
using ::testing::HasSubstr;

std::vector<Bucket> in_buckets(const NamedTensors& parameters) {
  return optimizers::make_buckets(parameters, 0, 0,
                                  [](std::int64_t count, const at::TensorOptions& options) {
                                    return at::zeros({count}, options);
                                  });
}

AlgorithmRow row_bound_to(std::string values) {
  AlgorithmRow row;
  row.name = "own";
  row.bound_to_values = std::move(values);
  return row;
}

/// An algorithm whose call in flight writes nines into the first bucket.
class InFlight final : public optimizers::Algorithm {
 public:
  using Algorithm::Algorithm;
  void step(const optimizers::Round&, const optimizers::StepBucket&) override {}
  void drain() override {
    const torch::NoGradGuard no_grad;
    buckets_.front().flat().fill_(9);
    ++drains;
  }
  int drains = 0;
};

TEST(HeldParameters, OtherMemoryIsTakenBackBehindTheCallsInFlight) {
  on_ranks(some_ranks(), [](Context& context) {
    const at::Tensor x = filled({3}, 1).requires_grad_();
    const AlgorithmRow row = row_bound_to("");
    HeldParameters held(context.rank(), context.log(), row, in_buckets({{"x", x}}), {});
    InFlight algorithm(held.buckets());
    held.take_back(algorithm);
    EXPECT_EQ(algorithm.drains, 0);
    x.set_data(filled({3}, 5));
    EXPECT_FALSE(held.are_bound());
    held.take_back(algorithm);
    EXPECT_TRUE(held.are_bound());
    EXPECT_EQ(algorithm.drains, 1);
    EXPECT_SAME(x, filled({3}, 5));
    x.set_data(filled({4}, 5));
    EXPECT_THAT(error_of<InvalidArgument>([&] { held.take_back(algorithm); }),
                HasSubstr("rank " + std::to_string(context.rank()) + ", parameter 'x'"));
  });
}

TEST(HeldParameters, AFrozenOneThatRequiresGradientsIsNamed) {
  on_ranks(some_ranks(), [](Context& context) {
    const at::Tensor x = filled({3}, 1).requires_grad_();
    const at::Tensor frozen = filled({2}, 1);
    const AlgorithmRow row = row_bound_to("");
    const HeldParameters held(context.rank(), context.log(), row, in_buckets({{"x", x}}),
                              {{"still", frozen}});
    held.check_frozen();
    frozen.requires_grad_(true);
    EXPECT_THAT(error_of<StateError>([&] { held.check_frozen(); }),
                HasSubstr("rank " + std::to_string(context.rank()) + ", parameter 'still'"));
  });
}

TEST(HeldParameters, AValueThatOthersBelongToIsNamedWhenItWasSet) {
  on_ranks(some_ranks(), [](Context& context) {
    const at::Tensor x = filled({3}, 1).requires_grad_();
    const AlgorithmRow row = row_bound_to("its corrections");
    HeldParameters held(context.rank(), context.log(), row, in_buckets({{"x", x}}), {});
    held.check_values();  // no step has been made
    EXPECT_FALSE(held.values_hold());
    held.note_values();
    EXPECT_TRUE(held.values_hold());
    x.variable_data().fill_(5);
    EXPECT_FALSE(held.values_hold());
    EXPECT_THAT(error_of<StateError>([&] { held.check_values(); }),
                HasSubstr("rank " + std::to_string(context.rank()) +
                          ", own, parameter 'x': expected the value that the last step left, to "
                          "which its corrections belong"));
    held.forget_values();
    held.check_values();
  });
}

TEST(HeldParameters, ValuesThatNothingBelongsToMayBeSet) {
  on_ranks(some_ranks(), [](Context& context) {
    const at::Tensor x = filled({3}, 1).requires_grad_();
    const AlgorithmRow row = row_bound_to("");
    HeldParameters held(context.rank(), context.log(), row, in_buckets({{"x", x}}), {});
    held.note_values();
    EXPECT_FALSE(held.values_hold());
    x.variable_data().fill_(5);
    held.check_values();
  });
}

}  // namespace
}  // namespace bluefog::testing
