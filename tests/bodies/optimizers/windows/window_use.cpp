// Algorithms over windows whose ranks are slow, end, restart, resume, or ask for too much.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <sstream>
#include <thread>

#include "bluefog_cpp/error.hpp"
#include "tests/bodies/optimizers/windows/window_run.hpp"

namespace bluefog::testing {
namespace {

using optimizers::AlgorithmName;
using optimizers::DistributedOptimizer;
using optimizers::DistributedOptimizerOptions;
using ::testing::HasSubstr;

// Rank 0 computes, and calls nothing, until the others have made all their steps.
TEST(WindowOptimizers, NobodyWaitsForASlowRank) {
  on_ranks({.at_least = 2}, [](Context& context) {
    for (const AlgorithmName kind : kWindowKinds) {
      WindowRun run(context, kind, own_seed(context));
      if (context.rank() == 0) {
        meet(context);
        run.train_once();
      } else {
        for (int step = 0; step < 10; ++step) {
          run.train_once();
        }
        meet(context);
      }
      EXPECT_EQ(run.optimizer.step_count(), context.rank() == 0 ? 1 : 10);
      EXPECT_TRUE(at::isfinite(run.point.x()).all().item<bool>());
      ops::barrier(context);
    }
  });
}

TEST(WindowOptimizers, FinishedRanksAreLeftOut) {
  on_ranks({.at_least = 2}, [](Context& context) {
    for (const AlgorithmName kind : kWindowKinds) {
      SCOPED_TRACE(name_of(kind));
      const bool ends_early = context.rank() == context.size() - 1;
      double weight = 0.0;
      {
        WindowRun run(context, kind, own_seed(context));
        run.train_once();
        ops::barrier(context);
        run.optimizer.finish();
        ops::barrier(context);
        if (!ends_early) {
          meet(context);
          for (int step = 0; step < 6; ++step) {
            run.train_once();
          }
          meet(context);
          run.optimizer.finish();
        }
        if (kind == AlgorithmName::AsyncPushSum) {
          weight = run.weight();
        }
        if (!ends_early) {
          meet(context);
        }
      }
      if (ends_early) {
        for (int i = 0; i < 3; ++i) {
          meet(context);
        }
      }
      if (kind == AlgorithmName::AsyncPushSum) {
        EXPECT_NEAR(total(context, weight), context.size(), 1e-12);
      }
      ops::barrier(context);
    }
  });
}

TEST(WindowOptimizers, RanksBehindOneThatHasFinishedAreServedInTheSameStep) {
  on_ranks({.at_least = 3, .at_most = 4}, [](Context& context) {
    for (const AlgorithmName kind : {AlgorithmName::WinPut, AlgorithmName::PullGet}) {
      SCOPED_TRACE(name_of(kind));
      const Point point(own_seed(context));
      torch::optim::SGD sgd(point.parameters(), kWindowRate);
      DistributedOptimizerOptions options = full_averaging(context, kind);
      options.bucket_bytes = 4096;  // the step's first bucket is its only one
      auto optimizer =
          std::make_unique<DistributedOptimizer>(context.shared_from_this(), sgd, point, options);
      const at::Tensor before = point.x().detach().clone();
      for (int rank = 0; rank < context.size(); ++rank) {
        if (rank == context.rank() && rank == 0) {
          optimizer.reset();
        } else if (rank == context.rank()) {
          optimizer->zero_grad();
          optimizer->step();
        }
        meet(context);
      }
      if (context.rank() == context.size() - 1) {
        EXPECT_GT((point.x() - before).abs().max().item<double>(), 1e-3);
      }
      meet(context);
    }
  });
}

// Python's optimizers have a context of their own, which ends with them.
TEST(WindowOptimizers, RanksThatHaveClosedTheirContextAreLeftOut) {
  on_ranks({.at_least = 2, .at_most = 4}, [](Context& context) {
    for (const AlgorithmName kind : kWindowKinds) {
      SCOPED_TRACE(name_of(kind));
      auto copy = context.duplicate();
      const Point point(own_seed(context));
      torch::optim::SGD sgd(point.parameters(), kWindowRate);
      auto optimizer =
          std::make_unique<DistributedOptimizer>(copy, sgd, point, full_averaging(*copy, kind));
      const auto train_once = [&] {
        optimizer->zero_grad();
        optimizer->step();
      };
      train_once();
      meet(context);
      if (context.rank() == 0) {
        optimizer.reset();
        copy->close();
      }
      meet(context);
      if (context.rank() != 0) {
        for (int step = 0; step < 20; ++step) {
          EXPECT_NO_THROW(train_once());
          std::this_thread::sleep_for(std::chrono::milliseconds(5));  // the other one's word comes
        }
      }
      meet(context);
      optimizer.reset();
    }
  });
}

// Values that neighbours sent before a restart do not reach the values that are set then.
TEST(WindowOptimizers, RestartForgetsWhatHasComeIn) {
  on_ranks({.at_least = 2}, [](Context& context) {
    for (const AlgorithmName kind : kWindowKinds) {
      SCOPED_TRACE(name_of(kind));
      WindowRun run(context, kind, 0);
      for (int step = 0; step < 3; ++step) {
        run.train_once();
      }
      ops::barrier(context);
      const at::Tensor fresh = at::full({LeastSquares::kDimension}, 5.0, at::kDouble);
      run.set_point(fresh);
      run.optimizer.restart();
      EXPECT_SAME(run.point.x(), fresh);
      ops::barrier(context);
      for (int step = 0; step < 3; ++step) {
        run.average_once();
      }
      ops::barrier(context);
      EXPECT_CLOSE(run.point.x(), fresh);
      if (kind == AlgorithmName::AsyncPushSum) {
        run.optimizer.drain();
        ops::barrier(context);
        EXPECT_NEAR(total(context, run.weight()), context.size(), 1e-12);
      }
      ops::barrier(context);
    }
  });
}

// A resumed run has the same bits if ranks step one after the other.
TEST(WindowOptimizers, GoOnFromASavedState) {
  on_ranks(some_ranks(), [](Context& context) {
    for (const AlgorithmName kind : kWindowKinds) {
      SCOPED_TRACE(name_of(kind));
      std::stringstream file;
      WindowRun first(context, kind, own_seed(context));
      for (int step = 0; step < 3; ++step) {
        first.in_turn([&] { first.train_once(); });
      }
      first.in_turn([&] {
        torch::serialize::OutputArchive archive;
        first.optimizer.save(archive);
        archive.save_to(file);
      });
      const at::Tensor saved = first.point.x().detach().clone();
      if (kind != AlgorithmName::AsyncPushSum) {
        first.optimizer.restart();  // what has come in is not saved
      }
      WindowRun second(context, kind, 11);
      second.train_once();
      ops::barrier(context);
      second.set_point(saved);
      torch::serialize::InputArchive archive;
      archive.load_from(file);
      second.optimizer.load(archive);
      EXPECT_SAME(second.point.x(), saved);
      ops::barrier(context);
      for (int step = 0; step < 3; ++step) {
        first.in_turn([&] { first.train_once(); });
        second.in_turn([&] { second.train_once(); });
      }
      EXPECT_SAME(second.point.x(), first.point.x());
      ops::barrier(context);
    }
  });
}

TEST(WindowOptimizers, PlansChooseAmongTheSchedulesNeighbours) {
  on_ranks(some_ranks(3), [](Context& context) {
    const int n = context.size();
    const int next = (context.rank() + 1) % n;
    const int previous = (context.rank() + n - 1) % n;
    for (const AlgorithmName kind : kWindowKinds) {
      SCOPED_TRACE(name_of(kind));
      const bool pushes = kind == AlgorithmName::AsyncPushSum;
      const Point point(own_seed(context));
      torch::optim::SGD sgd(point.parameters(), kWindowRate);
      DistributedOptimizerOptions options;
      options.algorithm = kind;
      options.schedule = topology::static_schedule(topology::exponential(n));
      options.plans = [&](std::int64_t /*round*/) {
        return NeighborPlan{.rank = context.rank(),
                            .size = n,
                            .self_weight = 0.5,
                            .sources = {{previous, pushes ? 1.0 : 0.5}},
                            .destinations = {{next, pushes ? 0.5 : 1.0}}};
      };
      DistributedOptimizer optimizer(context.shared_from_this(), sgd, point, options);
      for (int round = 0; round < 300; ++round) {
        optimizer.step();
        ops::barrier(context);
      }
      EXPECT_LT(disagreement(context, point.x()), 1e-3);

      NeighborPlan stranger = NeighborPlan::alone(context.rank(), n);
      const int far = (context.rank() + n - 1) % n;  // is sent to only where n ≤ 3
      stranger.self_weight = 0.5;
      stranger.destinations = {{far, 0.5}};
      const at::Tensor before = point.x().detach().clone();
      optimizer.set_next_plan(stranger);
      if (n >= 4) {
        try {
          optimizer.step();
          ADD_FAILURE() << "expected an error";
        } catch (const InvalidArgument& error) {
          EXPECT_THAT(error.what(), HasSubstr("expected destinations that the schedule has"));
        }
        EXPECT_SAME(point.x(), before);
      }
      ops::barrier(context);
    }
  });
}

TEST(WindowOptimizers, AsyncPushSumRefusesWhatItWouldNotConserve) {
  on_ranks(some_ranks(3), [](Context& context) {
    const Point point(0);
    torch::optim::SGD sgd(point.parameters(), kWindowRate);
    DistributedOptimizerOptions options;
    options.algorithm = AlgorithmName::AsyncPushSum;
    options.schedule = topology::static_schedule(unbalanced_graph(context.size()).transposed());
    try {
      const DistributedOptimizer optimizer(context.shared_from_this(), sgd, point, options);
      ADD_FAILURE() << "expected an error";
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr("async_push_sum expects"));
      EXPECT_THAT(error.what(), HasSubstr("columns that sum to 1"));
    }
    options.schedule.reset();
    DistributedOptimizer optimizer(context.shared_from_this(), sgd, point, options);
    NeighborPlan keeps_too_much = NeighborPlan::alone(context.rank(), context.size());
    keeps_too_much.destinations = {{(context.rank() + 1) % context.size(), 0.5}};
    EXPECT_THROW(optimizer.set_next_plan(keeps_too_much), InvalidArgument);

    Bag half;
    half.add("weight", at::zeros({3}, at::kHalf));
    torch::optim::SGD half_sgd(half.parameters(), kWindowRate);
    options.schedule.reset();
    EXPECT_THROW(DistributedOptimizer(context.shared_from_this(), half_sgd, half, options),
                 InvalidArgument);
    ops::barrier(context);
  });
}

}  // namespace
}  // namespace bluefog::testing
