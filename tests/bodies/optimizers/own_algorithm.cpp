// An algorithm that this file alone knows: registered from outside the library, by public headers,
// it is trained with by name and checked like those of the library.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "optimizers/algorithm.hpp"
#include "optimizers/algorithm_row.hpp"
#include "optimizers/bucket_averages.hpp"
#include "optimizers/distributed_optimizer.hpp"
#include "tests/bodies/optimizers/support.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::testing {
namespace {

using optimizers::AlgorithmName;
using optimizers::AlgorithmOption;
using optimizers::AlgorithmParts;
using optimizers::AlgorithmRow;
using optimizers::Bucket;
using optimizers::DistributedOptimizer;
using optimizers::DistributedOptimizerOptions;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr double kRate = 0.05;
constexpr double kShare = 0.75;

/// x ← (1 − ρ) ψ + ρ W ψ, ψ = x − γ d.
class PartialAverage final : public optimizers::Algorithm {
 public:
  PartialAverage(Context& context, std::vector<Bucket>& buckets, double share)
      : Algorithm(buckets),
        share_(share),
        averages_(context, optimizers::values_of(buckets), optimizers::names_of(buckets)) {
    for (const Bucket& bucket : buckets) {
      stepped_.push_back(bucket.make_state());
    }
  }

  void step(const optimizers::Round& round, const optimizers::StepBucket& step_bucket) override {
    averages_.run(round, [&](std::size_t b) {
      step_bucket(buckets_[b]);
      stepped_[b].copy_(buckets_[b].flat());
    });
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      buckets_[b].flat().lerp_(stepped_[b], 1.0 - share_);
    }
    optimizers::note_changes(buckets_);
  }

 private:
  double share_;
  optimizers::NeighborAverages averages_;
  std::vector<at::Tensor> stepped_;
};

AlgorithmRow partial_average_row() {
  return {.name = "partial_average",
          .aliases = {"partial"},
          .equation = "ψ = x − γ d; x ← (1 − ρ) ψ + ρ W ψ",
          .description = "Adapt-then-combine that keeps a share of its own.",
          .memory = {.copies = 1},
          .options = {{.name = "rho",
                       .default_value = kShare,
                       .meaning = "ρ, the share of the average",
                       .least = 0.0,
                       .below = 1.0}},
          .mixing = {.stochastic = optimizers::Stochastic::Rows},
          .make = [](AlgorithmParts parts) {
            return std::make_unique<PartialAverage>(parts.context, parts.buckets,
                                                    parts.number("rho"));
          }};
}

/// Once, whatever tests run.
void register_partial_average() {
  static const bool is_registered = [] {
    optimizers::register_algorithm(partial_average_row());
    return true;
  }();
  ASSERT_TRUE(is_registered);
}

std::string own_refusal(Context& context, const DistributedOptimizerOptions& options) {
  const Point point(0);
  torch::optim::SGD sgd(point.parameters(), kRate);
  try {
    const DistributedOptimizer optimizer(context.shared_from_this(), sgd, point, options);
    return "";
  } catch (const InvalidArgument& error) {
    return error.what();
  }
}

template <typename Call>
std::string refusal_of(Call&& call) {
  try {
    call();
    return "";
  } catch (const InvalidArgument& error) {
    return error.what();
  }
}

TEST(OwnAlgorithm, FollowsItsEquation) {
  register_partial_average();
  on_ranks(some_ranks(), [](Context& context) {
    const Schedule schedule = topology::one_peer_exponential(context.size());
    for (const double share : {kShare, 0.25}) {
      DistributedOptimizerOptions options{
          .algorithm = "partial-average", .schedule = schedule, .bucket_bytes = 32};
      if (share != kShare) {
        options.numbers["rho"] = share;
      }
      const LeastSquares problem = LeastSquares::of_rank(context.rank());
      const Point point(static_cast<std::uint64_t>(context.rank()));
      torch::optim::SGD sgd(point.parameters(), kRate);
      DistributedOptimizer optimizer(context.shared_from_this(), sgd, point, options);
      at::Tensor expected = starting_points(context.size(), Start::Different);
      for (int step = 0; step < 6; ++step) {
        train(optimizer, point, problem);
        const at::Tensor psi = expected - kRate * gradients(expected);
        expected = (1.0 - share) * psi + share * dense(schedule.mixing_matrix(step)).mm(psi);
        EXPECT_CLOSE(point.x(), expected[context.rank()]);
      }
    }
  });
}

TEST(OwnAlgorithm, IsCheckedByItsRow) {
  register_partial_average();
  on_ranks(some_ranks(2), [](Context& context) {
    DistributedOptimizerOptions options{.algorithm = "partial"};
    EXPECT_EQ(name_of(options.algorithm), "partial_average");
    options.schedule = topology::static_schedule(unbalanced_graph(context.size()));
    EXPECT_THAT(own_refusal(context, options),
                HasSubstr("partial_average expects weights of at least 0 and rows that sum to 1; "
                          "found in round 0: row"));
    options.schedule.reset();
    options.numbers = {{"rho", 1.0}};
    EXPECT_THAT(own_refusal(context, options),
                HasSubstr("rho: expected from 0 to below 1, found 1"));
    options.numbers = {{"roh", 0.5}};
    EXPECT_THAT(own_refusal(context, options),
                HasSubstr("numbers: expected options of partial_average, rho, found 'roh'"));
    options.numbers.clear();
    options.step_in_backward = true;
    EXPECT_THAT(own_refusal(context, options),
                HasSubstr("step_in_backward: expected adapt_then_combine, found partial_average"));
  });
}

TEST(AlgorithmRows, AreFoundByAnyOfTheirNames) {
  EXPECT_EQ(AlgorithmName("atc"), AlgorithmName::AdaptThenCombine);
  EXPECT_EQ(AlgorithmName("exact-diffusion"), AlgorithmName::ExactDiffusion);
  EXPECT_EQ(AlgorithmName("qg-dsgdm"), AlgorithmName::QuasiGlobalMomentum);
  EXPECT_EQ(DistributedOptimizerOptions{}.algorithm, AlgorithmName("adapt_then_combine"));
  EXPECT_EQ(optimizers::algorithms().front()->name, "adapt_then_combine");
  EXPECT_EQ(optimizers::find_algorithm("gossip"), nullptr);
  for (const AlgorithmRow* row : optimizers::algorithms()) {
    std::vector<std::string> names = row->aliases;
    names.push_back(row->name);
    for (std::string name : names) {
      EXPECT_EQ(optimizers::find_algorithm(name), row) << name;
      std::ranges::replace(name, '_', '-');
      EXPECT_EQ(AlgorithmName(name).text(), row->name) << name;
      EXPECT_EQ(&row_of(AlgorithmName(name)), row) << name;
    }
    EXPECT_FALSE(row->equation.empty()) << row->name;
    EXPECT_FALSE(row->description.empty()) << row->name;
  }
}

TEST(AlgorithmRows, UnknownNamesAreAnsweredWithTheNearest) {
  const std::string text = refusal_of([] { (void)AlgorithmName("exat-diffusion"); });
  EXPECT_THAT(text, HasSubstr("expected one of adapt_then_combine, adapt_with_combine, "));
  EXPECT_THAT(text, HasSubstr("found 'exat-diffusion'; did you mean exact_diffusion?"));
  EXPECT_THAT(refusal_of([] { (void)AlgorithmName(""); }), HasSubstr("found ''"));
}

template <typename Change>
std::string refused(Change&& change) {
  AlgorithmRow row = partial_average_row();
  row.name = "never_registered";
  row.aliases = {};
  change(row);
  return refusal_of([&] { optimizers::register_algorithm(row); });
}

TEST(AlgorithmRows, ThatCannotBeUsedAreRefused) {
  EXPECT_THAT(refused([](AlgorithmRow& row) { row.name = "extra"; }),
              HasSubstr("expected names that no algorithm has, found 'extra', which extra has"));
  EXPECT_THAT(refused([](AlgorithmRow& row) { row.aliases = {"gossip_pga"}; }),
              HasSubstr("found 'gossip_pga', which gossip_pga has"));
  EXPECT_THAT(refused([](AlgorithmRow& row) { row.make = nullptr; }),
              HasSubstr("expected a function that makes the algorithm (`make`), found none"));
  for (const char* wrong : {"", "Own", "own algorithm", "own-algorithm"}) {
    EXPECT_THAT(refused([&](AlgorithmRow& row) { row.name = wrong; }),
                HasSubstr(std::string("digits and underscores, found '") + wrong + "'"));
  }
  EXPECT_EQ(optimizers::find_algorithm("never_registered"), nullptr);
}

TEST(AlgorithmRows, OfOtherHeadersAreRefused) {
  AlgorithmRow row = partial_average_row();
  row.name = "never_registered";
  row.aliases = {};
  optimizers::AlgorithmLayout compiled;
  compiled.bucket += 8;
  compiled.torch_minor = 99;
  EXPECT_THAT(
      refusal_of([&] { optimizers::register_algorithm(row, compiled); }),
      AllOf(HasSubstr("expected a file compiled with the headers of this library and torch "),
            HasSubstr("found one compiled with torch 2.99 (bytes of row"),
            HasSubstr(std::to_string(sizeof(optimizers::Bucket) + 8))));
  EXPECT_EQ(optimizers::find_algorithm("never_registered"), nullptr);
}

TEST(AlgorithmRows, OfWrongAliasesAreRefused) {
  for (const char* wrong : {"", "A|B x", "own-algorithm"}) {
    EXPECT_THAT(refused([&](AlgorithmRow& row) {
                  row.aliases = {"never", wrong};
                }),
                HasSubstr(std::string("alias: expected lower-case letters, digits and "
                                      "underscores, found '") +
                          wrong + "'"));
  }
  EXPECT_THAT(refused([](AlgorithmRow& row) { row.aliases = {row.name}; }),
              HasSubstr("expected other names than the row's own, found 'never_registered'"));
  EXPECT_THAT(refused([](AlgorithmRow& row) {
                row.aliases = {"never", "once", "never"};
              }),
              HasSubstr("alias: expected each once, found 'never' twice"));
  EXPECT_EQ(optimizers::find_algorithm("never"), nullptr);
}

TEST(AlgorithmRows, OfWrongOptionsAreRefused) {
  const auto refused_option = [](auto&& change) {
    return refused([&](AlgorithmRow& row) { change(row.options.front()); });
  };
  EXPECT_THAT(
      refused_option([](AlgorithmOption& option) { option.name = "A|B"; }),
      HasSubstr("option: expected lower-case letters, digits and underscores, found 'A|B'"));
  EXPECT_THAT(refused([](AlgorithmRow& row) { row.options.push_back(row.options.front()); }),
              HasSubstr("option 'rho': expected each option once, found it twice"));
  EXPECT_THAT(refused_option([](AlgorithmOption& option) { option.meaning = ""; }),
              HasSubstr("option 'rho': expected a text for tables (`meaning`), found none"));
  for (const double wrong : {7.5, 1.0, -0.5}) {
    EXPECT_THAT(refused_option([&](AlgorithmOption& option) { option.default_value = wrong; }),
                HasSubstr("option 'rho': expected a default from 0 to below 1, found "));
  }
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(refused_option([&](AlgorithmOption& option) { option.default_value = nan; }),
              HasSubstr("found nan"));
  for (const double wrong : {1.0, 2.0, nan}) {
    EXPECT_THAT(refused_option([&](AlgorithmOption& option) { option.least = wrong; }),
                HasSubstr("option 'rho': expected `least` below `below`, found "));
  }
  EXPECT_THAT(
      refused_option([](AlgorithmOption& option) { option.is_field = true; }),
      HasSubstr("option 'rho': expected one of compression, global_period_rounds, momentum, "
                "step_in_backward for a field"));
  for (const char* wrong : {"momentum", "bucket_bytes"}) {
    EXPECT_THAT(refused_option([&](AlgorithmOption& option) { option.name = wrong; }),
                HasSubstr("expected a name that no field of DistributedOptimizerOptions has"));
  }
  EXPECT_EQ(optimizers::find_algorithm("never_registered"), nullptr);
}

TEST(AlgorithmRows, OfWrongSchedulesAreRefused) {
  const optimizers::OwnSchedule own{
      .name = "own-graph", .make = [](int size) { return topology::one_peer_exponential(size); }};
  EXPECT_THAT(refused([&](AlgorithmRow& row) {
                row.own_schedules = {own, own};
              }),
              HasSubstr("schedule 'own-graph': expected each schedule once, found it twice"));
  EXPECT_THAT(refused([](AlgorithmRow& row) {
                row.own_schedules = {{.name = "own-graph", .make = nullptr}};
              }),
              HasSubstr("expected a function that makes it (`make`), found none"));
  for (const char* wrong : {"", "A|B"}) {
    EXPECT_THAT(refused([&](AlgorithmRow& row) {
                  row.own_schedules = {{.name = wrong, .make = own.make}};
                }),
                HasSubstr(std::string("digits, hyphens and underscores, found '") + wrong + "'"));
  }
}

TEST(AlgorithmRows, OfOneNameFromManyThreadsComeInOnce) {
  static int run = 0;
  const std::string name = "from_threads_" + std::to_string(run++);
  std::vector<std::string> refusals(8);
  std::vector<std::thread> threads;
  for (std::string& said : refusals) {
    threads.emplace_back([&said, &name] {
      said = refusal_of([&] {
        AlgorithmRow row = partial_average_row();
        row.name = name;
        row.aliases = {};
        optimizers::register_algorithm(std::move(row));
      });
      EXPECT_NE(optimizers::find_algorithm(name), nullptr);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(std::ranges::count(refusals, ""), 1);
}

}  // namespace
}  // namespace bluefog::testing
