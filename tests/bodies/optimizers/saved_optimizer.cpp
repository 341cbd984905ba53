// The archive of a distributed optimizer by itself: what it gives back, and what it refuses.
#include "optimizers/wrapper/saved_optimizer.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "bluefog_cpp/error.hpp"
#include "optimizers/algorithm_row.hpp"
#include "optimizers/buckets/flat_state.hpp"
#include "tests/bodies/optimizers/support.hpp"
#include "tests/support/error_of.hpp"

namespace bluefog::testing {
namespace {

using optimizers::DistributedOptimizer;
using optimizers::NamedTensors;
using optimizers::save_optimizer;
using optimizers::SavedOptimizer;
using optimizers::StepCounts;
using ::testing::HasSubstr;

/// One parameter, stepped with momentum, whose buffer is the wrapped optimizer's state.
struct Momentum {
  Momentum()
      : x(filled({3}, 1).requires_grad_()), sgd({x}, torch::optim::SGDOptions(0.5).momentum(0.5)) {}
  void step() {
    sgd.zero_grad();
    (2 * x).sum().backward();
    sgd.step();
  }
  at::Tensor x;
  torch::optim::SGD sgd;
};

torch::serialize::InputArchive read_back(torch::serialize::OutputArchive& written) {
  std::stringstream bytes;
  written.save_to(bytes);
  torch::serialize::InputArchive archive;
  archive.load_from(bytes);
  return archive;
}

torch::serialize::InputArchive saved_extra(const Momentum& model) {
  StepCounts counts(2);
  for (int step = 0; step < 3; ++step) {
    counts.count_step();
  }
  torch::serialize::OutputArchive archive;
  save_optimizer(archive, "extra", model.sgd, counts, {{"correction", filled({4}, 7)}});
  return read_back(archive);
}

TEST(SavedOptimizer, GivesBackCountsAndStates) {
  on_ranks(some_ranks(), [](Context& context) {
    Momentum first;
    first.step();
    auto archive = saved_extra(first);
    SavedOptimizer saved(archive, context.rank());
    Momentum second;
    second.x.set_data(first.x.detach().clone());
    saved.check_fits("extra", second.sgd);

    EXPECT_EQ(saved.step_count(), 3);
    EXPECT_EQ(saved.round_count(), 1);
    const NamedTensors state{{"correction", filled({4}, 0)}};
    const NamedTensors read = saved.algorithm_state(state);
    optimizers::check_state(read, state);
    optimizers::set_state(read, state);
    EXPECT_SAME(state[0].tensor, filled({4}, 7));
    saved.load_wrapped(second.sgd);
    first.step();
    second.step();
    EXPECT_SAME(second.x, first.x);
  });
}

TEST(SavedOptimizer, OtherAlgorithmsClassesAndBucketsAreRefused) {
  on_ranks(some_ranks(), [](Context& context) {
    const std::string rank = "rank " + std::to_string(context.rank()) + ": ";
    Momentum model;
    auto archive = saved_extra(model);
    SavedOptimizer saved(archive, context.rank());
    EXPECT_EQ(error_of<InvalidArgument>([&] { saved.check_fits("d2", model.sgd); }),
              rank + "expected the saved state of d2, found that of extra");
    torch::optim::Adam adam({model.x}, torch::optim::AdamOptions(0.1));
    EXPECT_EQ(error_of<InvalidArgument>([&] { saved.check_fits("extra", adam); }),
              rank +
                  "expected the saved state of a torch::optim::Adam, found that of a "
                  "torch::optim::SGD");
    for (const NamedTensors& state : {NamedTensors{{"correction", filled({5}, 1)}},
                                      NamedTensors{{"tracking", filled({4}, 1)}}}) {
      EXPECT_THAT(error_of<InvalidArgument>(
                      [&] { optimizers::check_state(saved.algorithm_state(state), state); }),
                  HasSubstr("expected '" + state[0].name + "'"));
    }
    torch::optim::SGD of_two({model.x, filled({2}, 0)}, torch::optim::SGDOptions(0.5));
    EXPECT_THAT(error_of<InvalidArgument>([&] { saved.load_wrapped(of_two); }),
                HasSubstr(rank + "expected the saved state of a torch::optim::SGD with these "
                                 "parameters"));
  });
}

TEST(SavedOptimizer, ArchivesOfEarlierVersionsNameNoClass) {
  on_ranks(some_ranks(), [](Context& context) {
    Momentum model;
    torch::serialize::OutputArchive written;
    written.write("algorithm", c10::IValue(std::string("extra")));
    written.write("step_count", c10::IValue(1));
    written.write("round_count", c10::IValue(1));
    torch::serialize::OutputArchive state;
    written.write("state", state);
    torch::serialize::OutputArchive wrapped;
    model.sgd.save(wrapped);
    written.write("wrapped", wrapped);
    auto archive = read_back(written);
    const SavedOptimizer saved(archive, context.rank());
    torch::optim::Adam adam({model.x}, torch::optim::AdamOptions(0.1));
    saved.check_fits("extra", adam);
    saved.check_fits("extra", model.sgd);
  });
}

TEST(SavedOptimizer, OfAnotherRankIsRefusedWhereAllBelongTogether) {
  on_ranks(some_ranks(), [](Context& context) {
    for (const std::string algorithm : {"extra", "gradient_tracking", "push_sum"}) {
      const Point point(0);
      torch::optim::SGD sgd(point.parameters(), 0.1);
      DistributedOptimizer optimizer(context.shared_from_this(), sgd, point,
                                     full_averaging(context, algorithm));
      torch::serialize::OutputArchive written;
      optimizer.save(written);
      auto own = read_back(written);
      optimizer.load(own);

      const auto why = [&](int rank, int size) {
        torch::serialize::OutputArchive other;
        save_optimizer(other, optimizers::row_of(algorithm).name, sgd, StepCounts(1), {});
        optimizers::save_place(other, rank, size);
        auto archive = read_back(other);
        return error_of<InvalidArgument>([&] { optimizer.load(archive); });
      };
      const std::string place =
          fmt::format("expected what rank {} of {} has saved", context.rank(), context.size());
      EXPECT_THAT(why(context.rank() + 1, context.size()), HasSubstr(place));
      EXPECT_THAT(why(context.rank(), context.size() + 1), HasSubstr(place));
    }
    Momentum model;
    torch::serialize::OutputArchive written;
    save_optimizer(written, "diloco", model.sgd, StepCounts(2), {});
    optimizers::save_place(written, context.rank() + 1, context.size());
    auto archive = read_back(written);
    const SavedOptimizer saved(archive, context.rank());
    saved.check_is_own(optimizers::row_of("diloco").memory.conserved, context.size());
  });
}

TEST(SavedOptimizer, AnArchiveThatLacksAPartIsNone) {
  on_ranks(some_ranks(), [](Context& context) {
    torch::serialize::OutputArchive written;
    written.write("algorithm", c10::IValue(std::string("extra")));
    auto archive = read_back(written);
    EXPECT_THAT(
        error_of<InvalidArgument>([&] { const SavedOptimizer saved(archive, context.rank()); }),
        HasSubstr("rank " + std::to_string(context.rank()) +
                  ": expected the saved state of a distributed optimizer, found: "));
  });
}

}  // namespace
}  // namespace bluefog::testing
