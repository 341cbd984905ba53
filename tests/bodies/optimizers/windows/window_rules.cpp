// The results of algorithms over windows, in which no rank waits for another one.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <random>
#include <thread>

#include "tests/bodies/optimizers/windows/window_run.hpp"

namespace bluefog::testing {
namespace {

using optimizers::AlgorithmName;

/// The state of all ranks by the documentation's equations, if one rank steps at a time.
class Oracle {
 public:
  Oracle(AlgorithmName kind, int size)
      : kind_(kind),
        schedule_(window_schedule(kind, size)),
        x_(starting_points(size, Start::Different)),
        w_(static_cast<std::size_t>(size), 1.0),
        rounds_(static_cast<std::size_t>(size), 0) {
    for (int i = 0; i < size; ++i) {
      published_.push_back(x_[i].clone());
      pushed_w_.push_back(0.0);
      pushed_.push_back(at::zeros_like(x_[i]));
      put_.emplace_back();
      for (int j = 0; j < size; ++j) {
        put_.back().push_back(x_[i].clone());
      }
    }
  }

  [[nodiscard]] at::Tensor model(int rank) const { return x_[rank] / w_[index(rank)]; }

  void step(int rank, bool communicates) {
    const at::Tensor gradient = LeastSquares::of_rank(rank).gradient(model(rank));
    const at::Tensor psi = x_[rank] - kWindowRate * gradient;
    x_[rank] = psi;
    if (!communicates) {
      return;
    }
    const MixingMatrix w = schedule_.mixing_matrix(rounds_[index(rank)]++);
    if (kind_ == AlgorithmName::AsyncPushSum) {
      push(rank, w);
      return;
    }
    published_[index(rank)] = psi.clone();
    for (const int reader : w.out_neighbors(rank)) {
      put_[index(reader)][index(rank)] = psi.clone();
    }
    at::Tensor sum = w.weight(rank, rank) * psi;
    for (const int source : w.in_neighbors(rank)) {
      sum = sum + w.weight(rank, source) * (kind_ == AlgorithmName::WinPut
                                                ? put_[index(rank)][index(source)]
                                                : published_[index(source)]);
    }
    x_[rank] = sum;
  }

 private:
  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

  void push(int rank, const MixingMatrix& p) {
    double& own = w_[index(rank)];
    const double share = p.weight(rank, rank);
    if (share * own >= 1.0 / 8) {
      for (const int reader : p.out_neighbors(rank)) {
        pushed_[index(reader)] += p.weight(reader, rank) * x_[rank];
        pushed_w_[index(reader)] += p.weight(reader, rank) * own;
      }
      x_[rank].mul_(share);
      own *= share;
    }
    x_[rank].add_(pushed_[index(rank)]);
    own += pushed_w_[index(rank)];
    pushed_[index(rank)].zero_();
    pushed_w_[index(rank)] = 0.0;
  }

  AlgorithmName kind_;
  Schedule schedule_;
  at::Tensor x_;
  std::vector<double> w_;
  std::vector<std::int64_t> rounds_;
  std::vector<at::Tensor> published_;
  std::vector<std::vector<at::Tensor>> put_;
  std::vector<at::Tensor> pushed_;
  std::vector<double> pushed_w_;
};

/// Calls `step(rank)` for drawn ranks, rank 0 more often than others, on all ranks alike. One rank
/// steps at a time; the others call nothing meanwhile.
void in_drawn_turns(Context& context, int turns, const std::function<void(int rank)>& step) {
  std::minstd_rand random(7);
  for (int turn = 0; turn < turns; ++turn) {
    const auto draw = static_cast<int>(random() % (2U * static_cast<unsigned>(context.size())));
    step(draw < context.size() ? draw : 0);
    ops::barrier(context);
  }
}

TEST(WindowOptimizers, FollowTheirEquations) {
  on_ranks([](Context& context) {
    for (const AlgorithmName kind : kWindowKinds) {
      SCOPED_TRACE(name_of(kind));
      WindowRun run(context, kind, own_seed(context), 2);
      Oracle oracle(kind, context.size());
      std::vector<int> steps(static_cast<std::size_t>(context.size()), 0);
      in_drawn_turns(context, 10 * context.size(), [&](int rank) {
        oracle.step(rank, ++steps[static_cast<std::size_t>(rank)] % 2 == 0);
        if (rank == context.rank()) {
          run.train_once();
        }
      });
      EXPECT_CLOSE(run.point.x(), oracle.model(context.rank()));
      ops::barrier(context);
    }
  });
}

TEST(WindowOptimizers, ARankAloneStepsAsTheWrappedOptimizerDoes) {
  on_ranks({.at_most = 1}, [](Context& context) {
    for (const AlgorithmName kind : kWindowKinds) {
      WindowRun run(context, kind, 3);
      WindowRun plain(context, AlgorithmName::None, 3);
      for (int step = 0; step < 5; ++step) {
        run.train_once();
        plain.train_once();
      }
      run.optimizer.finish();
      EXPECT_SAME(run.point.x(), plain.point.x()) << name_of(kind);
    }
  });
}

// Σ w is n and Σ x moves by the steps alone, at any speed of the ranks; without steps all ranks
// meet at Σ x / n.
TEST(WindowOptimizers, AsyncPushSumConservesTheSums) {
  on_ranks([](Context& context) {
    WindowRun run(context, AlgorithmName::AsyncPushSum, own_seed(context), 1, 1 << 20);
    at::Tensor expected = run.point.x().detach().clone();
    std::minstd_rand random(static_cast<unsigned>(context.rank()) + 1U);
    for (int step = 0; step < 30; ++step) {
      expected = expected - kWindowRate * run.problem.gradient(run.point.x().detach());
      run.train_once();
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
    }
    const auto conserved = [&] {
      ops::barrier(context);
      run.optimizer.drain();
      ops::barrier(context);
      EXPECT_NEAR(total(context, run.weight()), context.size(), 1e-12);
      EXPECT_CLOSE(total(context, run.weight() * run.point.x()), total(context, expected));
    };
    conserved();
    for (int round = 0; round < 200; ++round) {
      run.average_once();
      ops::barrier(context);
    }
    conserved();
    // The tolerance is for 30 steps, each of which rounds a few times.
    EXPECT_EQ(difference(run.point.x(), total(context, expected) / context.size(), 1e-10), "");
  });
}

// Rank 0 makes three steps for each of the others' one.
TEST(WindowOptimizers, AsyncPushSumSettlesWhereStepsWeighTheObjectives) {
  on_ranks(some_ranks(2), [](Context& context) {
    std::vector<double> steps(static_cast<std::size_t>(context.size()), 1.0);
    steps[0] = 3.0;
    const at::Tensor settled = minimiser(steps);
    WindowRun run(context, AlgorithmName::AsyncPushSum, own_seed(context));
    std::vector<double> distances;
    for (const double rate : {1e-2, 2e-3}) {
      run.set_rate(rate);
      for (int cycle = 0; cycle < static_cast<int>(4 / rate); ++cycle) {
        run.in_turn([&] {
          for (int step = 0; step < (context.rank() == 0 ? 3 : 1); ++step) {
            run.train_once();
          }
        });
      }
      distances.push_back(
          std::sqrt(squared_distance(context, run.point.x(), settled) / context.size()));
    }
    const double bias = (settled - minimiser(context.size())).norm().item<double>();
    EXPECT_LT(distances[1], distances[0] / 3);  // of order γ
    EXPECT_LT(distances[1], bias / 10);
  });
}

TEST(WindowOptimizers, RanksAgreeAsTheStepSizeGoesDown) {
  on_ranks(some_ranks(2), [](Context& context) {
    for (const AlgorithmName kind : kWindowKinds) {
      SCOPED_TRACE(name_of(kind));
      WindowRun run(context, kind, own_seed(context));
      std::vector<double> distances;
      for (const double rate : {1e-2, 1e-4}) {
        run.set_rate(rate);
        in_drawn_turns(context, 80 * context.size(), [&](int rank) {
          if (rank == context.rank()) {
            run.train_once();
          }
        });
        distances.push_back(disagreement(context, run.point.x()));
      }
      EXPECT_LT(distances[0], 1.0);
      EXPECT_LT(distances[1], distances[0] / 10);  // of order γ
    }
  });
}

}  // namespace
}  // namespace bluefog::testing
