// The consensus step size of algorithms that average by codes of what has changed: chosen by a trial,
// and refused where differences would grow.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <regex>
#include <span>
#include <string>
#include <vector>

#include "bluefog_cpp/context/context_core.hpp"
#include "bluefog_cpp/error.hpp"
#include "ops/compression.hpp"
#include "tests/bodies/optimizers/codes/coded_runs.hpp"
#include "tests/bodies/optimizers/outer/outer_runs.hpp"
#include "tests/support/error_of.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::testing {
namespace {

using optimizers::DistributedOptimizer;
using optimizers::DistributedOptimizerOptions;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kKappa = "consensus_step_size";

DistributedOptimizerOptions coded_gossip(optimizers::AlgorithmName algorithm,
                                         const std::string& code, Schedule schedule,
                                         Numbers numbers = {}) {
  auto options = coded_options(algorithm, code, std::move(numbers));
  options.schedule = std::move(schedule);
  return options;
}

/// The largest distance of this rank's values from the mean, beside that at the start, after rounds
/// without local steps.
double share_left(Context& context, const DistributedOptimizerOptions& options, int rounds) {
  const at::Tensor starts = starting_points(context.size(), Start::Different);
  const at::Tensor mean = starts.mean(0);
  const at::Tensor end = points_of_run(context, options, Start::Different, rounds, 0.0).back();
  return ((end - mean).norm() / (starts - mean).norm()).item<double>();
}

std::vector<Schedule> schedules_of(int size) {
  return {topology::static_schedule(topology::exponential(size)),
          topology::static_schedule(topology::ring(size)), topology::one_peer_exponential(size)};
}

/// Left out, it is one with which ranks come to agree, whatever the code and the graph.
TEST(ConsensusSteps, LeftOutAreThoseThatConverge) {
  on_ranks(exactly(4), [](Context& context) {
    const std::vector<Schedule> schedules = schedules_of(context.size());
    for (const std::string code : {"topk", "topk8", "sign"}) {
      EXPECT_LT(share_left(context, coded_gossip("choco", code, schedules.front()), 300), 0.2)
          << code;
    }
    EXPECT_LT(share_left(context, coded_gossip("choco", "topk:256", schedules.back()), 300), 0.2);
  });
}

/// Codes that keep most of a vector take 1, with the bits that they had.
TEST(ConsensusSteps, LeftOutAreOneForCodesThatKeepMost) {
  on_ranks(exactly(4), [](Context& context) {
    for (const Schedule& schedule : schedules_of(context.size())) {
      for (const std::string code : {"int4", "int8", "bfloat16", "float16"}) {
        const auto found = points_of_run(context, coded_gossip("choco", code, schedule),
                                         Start::Different, 12, kOuterRate);
        const auto expected =
            points_of_run(context, coded_gossip("choco", code, schedule, {{kKappa, 1.0}}),
                          Start::Different, 12, kOuterRate);
        EXPECT_SAME(found.back(), expected.back()) << code;
      }
    }
  });
}

/// A number in the refusal of a larger one.
double named_in(const std::string& refusal) {
  std::smatch found;
  const std::regex words("with consensus_step_size ([0-9.e-]+) they do");
  return std::regex_search(refusal, found, words) ? std::stod(found[1]) : 0.0;
}

TEST(ConsensusSteps, WithWhichDifferencesGrowAreRefusedWithOneThatHolds) {
  on_ranks(exactly(4), [](Context& context) {
    const Schedule graph = topology::static_schedule(topology::exponential(context.size()));
    for (const std::string code : {"topk", "sign"}) {
      const auto refusal_of = [&](double step) {
        return error_of<InvalidArgument>([&] {
          points_of_run(context, coded_gossip("choco", code, graph, {{kKappa, step}}),
                        Start::Different, 1, 0.0);
        });
      };
      const std::string refusal = refusal_of(1.0);
      EXPECT_THAT(refusal, AllOf(HasSubstr("compression " + ops::compression_named(code)->name() +
                                           ", consensus_step_size 1: choco expects differences"),
                                 HasSubstr("found a factor of ")));
      const double holds = named_in(refusal);
      EXPECT_GT(holds, 0.0) << refusal;
      const double left =
          share_left(context, coded_gossip("choco", code, graph, {{kKappa, holds}}), 300);
      EXPECT_LT(left, 0.2);
      EXPECT_EQ(share_left(context, coded_gossip("choco", code, graph), 300), left)
          << "it is what is taken where none is given";
    }
  });
}

/// Outer steps have momentum in their trial.
TEST(ConsensusSteps, OfOuterStepsLeftOutAreThoseThatConverge) {
  on_ranks(exactly(4), [](Context& context) {
    const Schedule ring = topology::static_schedule(topology::ring(context.size()));
    for (const std::string code : {"sign", "int4"}) {
      auto options = coded_gossip("gossip_diloco", code, ring);
      EXPECT_LT(share_left(context, options, 600), 0.5) << code;
      options.numbers[kKappa] = 1.9;
      EXPECT_THAT(
          error_of<InvalidArgument>([&] { share_left(context, options, 1); }),
          HasSubstr("outer_momentum 0.9, outer_learning_rate 0.7, consensus_step_size 1.9"));
    }
  });
}

/// Graphs on which values do not come to agree by themselves ask nothing of a code.
TEST(ConsensusSteps, OfGraphsInTwoPartsAreNotRefused) {
  on_ranks(exactly(4), [](Context& context) {
    std::vector<std::vector<WeightedRank>> rows;
    for (int rank = 0; rank < context.size(); ++rank) {
      rows.push_back({{rank / 2 * 2, 0.5}, {rank / 2 * 2 + 1, 0.5}});
    }
    const Schedule parts = topology::static_schedule(MixingMatrix::from_rows(rows));
    EXPECT_LT(share_left(context, coded_gossip("choco", "int4", parts, {{kKappa, 1.0}}), 3), 1.01);
  });
}

TEST(ConsensusSteps, OutOfBoundsOrOnOneRankAloneAreRefused) {
  on_ranks(some_ranks(2), [](Context& context) {
    const Schedule ring = topology::static_schedule(topology::ring(context.size()));
    const auto why = [&](double step) {
      return error_of<Error>([&] {
        share_left(context, coded_gossip("choco", "int4", ring, {{kKappa, step}}), 1);
      });
    };
    EXPECT_THAT(why(0.0005),
                HasSubstr("consensus_step_size: expected 0, or from 0.001 to below 2"));
    EXPECT_THAT(why(-1.0), HasSubstr("consensus_step_size: expected from 0 to below 2, found -1"));
    EXPECT_THAT(why(context.rank() == 0 ? 1.0 : 0.0),
                AllOf(HasSubstr("consensus_step_size 1"), HasSubstr("consensus_step_size 0")));
  });
}

/// int8, but of vectors as long as those of trials it keeps a part on some ranks.
class UnlikeInTrials final : public ops::Compression {
 public:
  explicit UnlikeInTrials(bool keeps_all) : keeps_all_(keeps_all) {}

  [[nodiscard]] std::string name() const override { return "unlike-in-trials"; }
  [[nodiscard]] std::size_t bytes_of(std::size_t count) const override {
    return code_->bytes_of(count);
  }
  [[nodiscard]] double contraction(std::size_t /*count*/) const override { return 0.02; }
  void encode(std::span<const float> values, std::span<std::byte> code) const override {
    std::vector<float> kept(values.begin(), values.end());
    if (!keeps_all_ && values.size() == kTrialLength) {
      std::fill(kept.begin() + kTrialLength / 32, kept.end(), 0.0F);
    }
    code_->encode(kept, code);
  }
  void decode(std::span<const std::byte> code, std::span<float> values) const override {
    code_->decode(code, values);
  }

 private:
  static constexpr std::size_t kTrialLength = 4096;
  bool keeps_all_;
  std::shared_ptr<const ops::Compression> code_ = ops::compression_named("int8");
};

/// A code may differ between binaries where no digest of a few numbers tells.
TEST(ConsensusSteps, ThatTrialsOfRanksFindDifferentAreRefused) {
  on_ranks(some_ranks(2), [](Context& context) {
    auto options =
        coded_gossip("choco", "int8", topology::static_schedule(topology::ring(context.size())));
    options.compression = std::make_shared<UnlikeInTrials>(context.rank() != 1);
    EXPECT_THAT(error_of<Error>([&] { share_left(context, options, 1); }),
                AllOf(HasSubstr("consensus_step_size"), HasSubstr("rank 1")));
  });
}

/// Ranks that have not heard of the failed comparison of their starts make the same calls.
TEST(ConsensusSteps, FailedFirstRoundsAreFollowedByRoundsOfTheSameCalls) {
  on_ranks(some_ranks(2), [](Context& context) {
    const Point point(0);
    const LeastSquares problem = LeastSquares::of_rank(context.rank());
    torch::optim::SGD sgd(point.parameters(), 0.01);
    for (const char* algorithm : {"choco", "gossip_diloco"}) {
      auto options = coded_gossip(algorithm, "int8",
                                  topology::static_schedule(topology::ring(context.size())));
      DistributedOptimizer optimizer(context.shared_from_this(), sgd, point, options);
      if (context.rank() == 0) {
        optimizer.refuse_step("no batch");
      } else {
        EXPECT_THAT(error_of<PeerFailure>([&] { train(optimizer, point, problem); }),
                    HasSubstr("no batch"));
      }
      const CallLedger& ledger = context.core().engine().ledger();  // nothing is under way
      const std::uint64_t first = ledger.next_call();
      train(optimizer, point, problem);
      EXPECT_EQ(ledger.next_call() - first, optimizer.buckets().size()) << algorithm;
      train(optimizer, point, problem);
    }
  });
}

}  // namespace
}  // namespace bluefog::testing
