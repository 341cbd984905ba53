// Optimizers that take in a rank which joins.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bluefog_cpp/context.hpp"
#include "bluefog_cpp/error.hpp"
#include "ops/collectives.hpp"
#include "optimizers/algorithm_row.hpp"
#include "optimizers/algorithms/registry/built_in_rows.hpp"
#include "optimizers/distributed_optimizer.hpp"
#include "tests/bodies/optimizers/support.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/ranks.hpp"
#include "topology/lazy_mixing.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::testing {
namespace {

using optimizers::AlgorithmName;
using optimizers::AlgorithmRow;
using optimizers::DistributedOptimizer;
using optimizers::DistributedOptimizerOptions;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr double kJoinersRate = 0.02;
constexpr double kMomentum = 0.5;
constexpr int kRanks = 3;
constexpr int kStepsTogether = 30;

/// Float64 values of all ranks, a row each.
at::Tensor of_all(Context& context, const at::Tensor& own) {
  const at::Tensor sent = own.detach().contiguous().clone();
  const at::Tensor all = at::zeros({context.size(), sent.numel()}, sent.options());
  const auto view = [](const at::Tensor& tensor) {
    return BufferView{.data = tensor.data_ptr(), .count = tensor.numel(), .dtype = Dtype::Float64};
  };
  ops::allgather(context, view(sent),
                 [&](const std::vector<std::int64_t>& /*counts*/) { return view(all); });
  return all;
}

at::Tensor momentum_of(torch::optim::SGD& sgd, const Point& point) {
  const auto found = sgd.state().find(point.first.unsafeGetTensorImpl());
  return found == sgd.state().end()
             ? at::Tensor()
             : static_cast<torch::optim::SGDParamState&>(*found->second).momentum_buffer();
}

/// One rank: it trains until another one has joined, and a while longer.
class Trainer {
 public:
  Trainer(Context& context, const AlgorithmRow& row)
      : row_(row),
        joins_(context.is_applicant()),
        point_(joins_ ? 77 : static_cast<std::uint64_t>(context.rank())),
        problem_(LeastSquares::of_rank(joins_ ? kRanks : context.rank())),
        sgd_(point_.parameters(), torch::optim::SGDOptions(joins_ ? 0.5 : kJoinersRate)
                                      .momentum(has_momentum() ? kMomentum : 0.0)) {
    DistributedOptimizerOptions options;
    options.algorithm = row.name;
    options.bucket_bytes = 32;
    options.when_shrunk = [this](const std::shared_ptr<Context>& group) { look(*group); };
    optimizer_ =
        std::make_unique<DistributedOptimizer>(context.shared_from_this(), sgd_, point_, options);
  }

  void run() {
    optimizer_->join();
    while (!has_met_) {
      train(*optimizer_, point_, problem_);
    }
    const std::int64_t met_at = optimizer_->step_count();
    const at::Tensor minimum = minimiser(std::vector<double>(kRanks + 1, 1.0));
    const double distance = squared_distance(optimizer_->context(), point_.x(), minimum);
    while (optimizer_->step_count() < met_at + kStepsTogether) {
      train(*optimizer_, point_, problem_);
      if (row_.uses_windows) {  // ranks of more steps would count for more
        ops::barrier(optimizer_->context());
      }
    }
    optimizer_->finish();
    EXPECT_EQ(optimizer_->context().size(), kRanks + 1);
    if (row_.name != AlgorithmName::None.text()) {
      EXPECT_LT(squared_distance(optimizer_->context(), point_.x(), minimum), distance)
          << row_.name;
    }
  }

 private:
  [[nodiscard]] bool has_momentum() const {
    return row_.name == AlgorithmName::GradientAllreduce.text();
  }

  /// All ranks, in their first moment together.
  void look(Context& group) {
    has_met_ = true;
    EXPECT_EQ(group.size(), kRanks + 1);
    EXPECT_EQ(group.rank() == kRanks, joins_);
    const at::Tensor values = of_all(group, point_.x());
    const at::Tensor steps =
        of_all(group, at::full({1}, static_cast<double>(optimizer_->step_count()), at::kDouble));
    if (row_.name == AlgorithmName::None.text()) {
      bool is_copy = false;
      for (int rank = 0; rank < kRanks; ++rank) {
        is_copy = is_copy || at::equal(values[kRanks], values[rank]);
      }
      EXPECT_TRUE(is_copy);
    } else {
      EXPECT_SAME(values, values[0].expand_as(values).clone());
    }
    if (!row_.uses_windows && row_.name != AlgorithmName::None.text()) {  // else each has its own
      EXPECT_SAME(steps, steps[0].expand_as(steps).clone());
      EXPECT_GT(steps[0].item<double>(), 0);
    }
    EXPECT_EQ(sgd_.param_groups()[0].options().get_lr(), kJoinersRate);
    if (has_momentum()) {
      const at::Tensor momenta = of_all(group, momentum_of(sgd_, point_));
      EXPECT_SAME(momenta, momenta[0].expand_as(momenta).clone());
      EXPECT_GT(momenta.abs().max().item<double>(), 0);
    }
  }

  const AlgorithmRow& row_;
  bool joins_;
  Point point_;
  LeastSquares problem_;
  torch::optim::SGD sgd_;
  bool has_met_ = false;
  std::unique_ptr<DistributedOptimizer> optimizer_;
};

TEST(Joiners, EveryAlgorithmTakesInARankWithTheMeanOfTheOthers) {
  for (const auto make_row : optimizers::kBuiltInRows) {
    const AlgorithmRow row = make_row();
    SCOPED_TRACE(row.name);
    const auto train_on = [&row](Context& context) { Trainer(context, row).run(); };
    with_applicants(kRanks, train_on, 1, train_on);
  }
}

TEST(Joiners, TheMeanOfTheOthersStays) {
  at::Tensor mean = at::zeros_like(Point(0).x());
  for (int rank = 0; rank < kRanks; ++rank) {
    mean += Point(static_cast<std::uint64_t>(rank)).x() / kRanks;
  }
  const auto body = [&mean](Context& context) {
    const bool joins = context.is_applicant();
    const Point point(joins ? 77 : static_cast<std::uint64_t>(context.rank()));
    torch::optim::SGD sgd(point.parameters(), 0.0);
    DistributedOptimizerOptions options;
    options.algorithm = AlgorithmName::LocalSgd;
    options.num_steps_per_communication = 1 << 20;  // ranks stay apart, and make no call
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, point, options);
    const LeastSquares problem = LeastSquares::of_rank(0);
    optimizer.join();
    while (!joins && optimizer.context().size() == kRanks) {
      train(optimizer, point, problem);
    }
    EXPECT_CLOSE(point.x(), mean);
  };
  with_applicants(kRanks, body, 1, body);
}

// The others keep their schedule, too.
TEST(Joiners, AnotherModelKeepsOutWhoJoinsAlone) {
  with_applicants(
      2,
      [](Context& context) {
        const Point point(static_cast<std::uint64_t>(context.rank()));
        torch::optim::SGD sgd(point.parameters(), kJoinersRate);
        const MixingMatrix given = topology::lazy(topology::exponential(2));
        DistributedOptimizerOptions options;
        options.schedule = topology::static_schedule(given);
        DistributedOptimizer optimizer(context.shared_from_this(), sgd, point, options);
        const LeastSquares problem = LeastSquares::of_rank(context.rank());
        while (optimizer.context().membership().lost.empty()) {
          train(optimizer, point, problem);
        }
        EXPECT_EQ(optimizer.context().size(), 2);
        EXPECT_EQ(optimizer.context().membership().joined.size(), 1U);
        const at::Tensor common = point.x().detach().clone();
        std::vector<at::Tensor> stepped;
        for (int rank = 0; rank < 2; ++rank) {
          stepped.push_back(common - kJoinersRate * LeastSquares::of_rank(rank).gradient(common));
        }
        train(optimizer, point, problem);
        EXPECT_CLOSE(point.x(), dense(given).mm(at::stack(stepped))[context.rank()]);
        optimizer.finish();
      },
      1,
      [](Context& context) {
        const torch::nn::Linear other(7, 5);
        torch::optim::SGD sgd(other->parameters(), kJoinersRate);
        DistributedOptimizer optimizer(context.shared_from_this(), sgd, *other, {});
        EXPECT_THAT(error_of<MismatchError>([&] { optimizer.join(); }),
                    AllOf(HasSubstr("rank 2"), HasSubstr("weight")));
        EXPECT_THROW(optimizer.step(), StateError);
      });
}

// The optimizer's state goes by it: momentum would be that of the other weight, without a word.
TEST(Joiners, AnotherOrderOfParametersKeepsOutWhoJoins) {
  const auto body = [](Context& context) {
    const bool joins = context.is_applicant();
    torch::nn::Sequential model(torch::nn::Linear(3, 3), torch::nn::Linear(3, 3));
    std::vector<at::Tensor> listed = model->parameters();
    if (joins) {
      std::swap(listed[0], listed[2]);
    }
    torch::optim::SGD sgd(listed, torch::optim::SGDOptions(kJoinersRate).momentum(kMomentum));
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, *model, {});
    if (joins) {
      EXPECT_THAT(error_of<MismatchError>([&] { optimizer.join(); }),
                  AllOf(HasSubstr("parameter 0 of group 0, 1.weight"), HasSubstr("rank 2")));
      return;
    }
    while (optimizer.context().membership().lost.empty()) {
      model->forward(at::ones({2, 3})).sum().backward();
      optimizer.step();
    }
    EXPECT_EQ(optimizer.context().size(), 2);
    optimizer.finish();
  };
  with_applicants(2, body, 1, body);
}

TEST(Joiners, AScheduleIsMadeForTheNewNumber) {
  const auto body = [](Context& context) {
    const bool joins = context.is_applicant();
    const Point point(1);
    torch::optim::SGD sgd(point.parameters(), kJoinersRate);
    int made_for = 0;
    DistributedOptimizerOptions options;
    options.schedule = topology::one_peer_exponential(context.size());
    options.make_schedule = [&made_for](const Context& other) {
      made_for = other.size();
      return topology::one_peer_exponential(other.size());
    };
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, point, options);
    const LeastSquares problem = LeastSquares::of_rank(joins ? 2 : context.rank());
    optimizer.join();
    while (made_for == 0) {
      train(optimizer, point, problem);
    }
    EXPECT_EQ(made_for, 3);
    for (int step = 0; step < 3; ++step) {
      train(optimizer, point, problem);
    }
    optimizer.finish();
  };
  with_applicants(2, body, 1, body);
}

TEST(Joiners, ARankThatLeavesTakesNothingAlong) {
  for (const AlgorithmName& name :
       {AlgorithmName::AdaptThenCombine, AlgorithmName::AdaptWithCombine}) {
    std::vector<at::Tensor> at_the_end(kRanks);
    const auto body = [&name, &at_the_end](Context& context) {
      const int own = context.rank();
      const Point point(static_cast<std::uint64_t>(own));
      torch::optim::SGD sgd(point.parameters(), kJoinersRate);
      DistributedOptimizerOptions options;
      options.algorithm = name;
      // On a ring ranks differ, and those that stay would not have the mean of all by themselves.
      options.schedule =
          topology::static_schedule(topology::ring(kRanks, topology::RingStyle::Right));
      at::Tensor at_departure;
      int shrunk = 0;
      options.when_shrunk = [&](const std::shared_ptr<Context>& group) {
        ++shrunk;
        EXPECT_EQ(group->size(), kRanks - 1);
        at_departure = point.x().detach().clone();
        at_the_end[static_cast<std::size_t>(own)] = at_departure;
        const at::Tensor all = of_all(*group, at_departure);
        EXPECT_SAME(all, all[0].expand_as(all).clone());
      };
      DistributedOptimizer optimizer(context.shared_from_this(), sgd, point, options);
      const LeastSquares problem = LeastSquares::of_rank(own);
      constexpr int kSteps = 40;
      for (int step = 0; step < kSteps && !optimizer.has_left(); ++step) {
        if (own == 1 && step == 5) {
          optimizer.leave();
        }
        train(optimizer, point, problem);
        EXPECT_EQ(optimizer.step_count(), step + 1);
      }
      EXPECT_EQ(optimizer.has_left(), own == 1);
      EXPECT_EQ(shrunk, own == 1 ? 0 : 1);
      if (own == 1) {
        at_the_end[1] = point.x().detach().clone();
        EXPECT_LT(optimizer.step_count(), kSteps);
        EXPECT_THROW(optimizer.step(), StateError);
      } else {
        optimizer.finish();
      }
    };
    with_applicants(kRanks, body, 0, {});
    EXPECT_CLOSE(at_the_end[0], at_the_end[1]);
    EXPECT_CLOSE(at_the_end[2], at_the_end[1]);
  }
}

/// The values of all ranks of a group, float64, as adapt-then-combine over the default graph has them.
class ExpectedRows {
 public:
  explicit ExpectedRows(std::vector<int> numbers) : numbers_(std::move(numbers)) {
    for (const int number : numbers_) {
      rows_.push_back(Point(static_cast<std::uint64_t>(number)).x().detach().clone());
    }
  }
  /// All ranks of another group begin at the same values.
  void begin_anew(std::vector<int> numbers, const at::Tensor& common) {
    numbers_ = std::move(numbers);
    rows_.assign(numbers_.size(), common.detach().clone());
  }
  void step() {
    std::vector<at::Tensor> stepped;
    for (std::size_t i = 0; i < numbers_.size(); ++i) {
      stepped.push_back(rows_[i] -
                        kJoinersRate * LeastSquares::of_rank(numbers_[i]).gradient(rows_[i]));
    }
    const auto size = static_cast<int>(numbers_.size());
    const at::Tensor averaged = dense(topology::exponential(size)).mm(at::stack(stepped));
    for (std::size_t i = 0; i < numbers_.size(); ++i) {
      rows_[i] = averaged[static_cast<std::int64_t>(i)];
    }
  }
  [[nodiscard]] const at::Tensor& of(int rank) const {
    return rows_[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] at::Tensor mean() const { return at::stack(rows_).mean(0); }

 private:
  std::vector<int> numbers_;
  std::vector<at::Tensor> rows_;
};

// Each step of each rank, but for the one in which rank 1 is lost, whose mean is where all begin anew.
TEST(Joiners, ATrajectoryGoesOnThroughALossAndAnEntry) {
  constexpr int kStepOfLoss = 5;
  std::atomic<bool> is_lost = false;
  const auto body = [&is_lost](Context& context) {
    const bool joins = context.is_applicant();
    const int number = joins ? kRanks : context.rank();
    const Point point(static_cast<std::uint64_t>(number));
    torch::optim::SGD sgd(point.parameters(), kJoinersRate);
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, point, {});
    const LeastSquares problem = LeastSquares::of_rank(number);
    while (joins && !is_lost) {
      std::this_thread::yield();
    }
    optimizer.join();
    ExpectedRows expected(context.membership().ranks);
    if (joins) {
      expected.begin_anew(optimizer.context().membership().ranks, point.x());
    }
    // The others count the step at whose end they have taken it in.
    for (int step = 0, together = joins ? 1 : 0; together < kStepsTogether; ++step) {
      if (number == 1 && step == kStepOfLoss) {
        is_lost = true;
        context.close();
        return;
      }
      const std::int64_t made = optimizer.step_count();
      const Membership before = optimizer.context().membership();
      train(optimizer, point, problem);
      const Membership& now = optimizer.context().membership();
      if (now.lost.size() > before.lost.size()) {
        expected.begin_anew(now.ranks, point.x());
        continue;
      }
      if (optimizer.step_count() > made) {  // else the others had made it
        expected.step();
      }
      if (now.joined.size() > before.joined.size()) {
        EXPECT_CLOSE(point.x(), expected.mean());
        expected.begin_anew(now.ranks, point.x());
      }
      EXPECT_CLOSE(point.x(), expected.of(optimizer.context().rank()));
      together += now.joined.empty() ? 0 : 1;
    }
    optimizer.finish();
    EXPECT_EQ(optimizer.context().membership().ranks, (std::vector<int>{0, 2, kRanks}));
  };
  with_applicants(kRanks, body, 1, body);
}

}  // namespace
}  // namespace bluefog::testing
