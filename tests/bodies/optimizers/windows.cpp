// Algorithms over windows, in which no rank waits for another one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <functional>
#include <random>
#include <sstream>
#include <thread>
#include <utility>

#include "bluefog_cpp/base/error.hpp"
#include "ops/collectives.hpp"
#include "tests/bodies/optimizers/support.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::testing {
namespace {

using optimizers::AlgorithmKind;
using optimizers::DistributedOptimizer;
using optimizers::DistributedOptimizerOptions;
using ::testing::HasSubstr;

constexpr double kWindowRate = 0.01;
constexpr AlgorithmKind kWindowKinds[] = {AlgorithmKind::WinPut, AlgorithmKind::PullGet,
                                          AlgorithmKind::AsyncPushSum};

Schedule window_schedule(AlgorithmKind kind, int size) {
  return kind == AlgorithmKind::AsyncPushSum
             ? topology::cycle({unbalanced_graph(size), topology::exponential(size)})
             : topology::one_peer_exponential(size);
}

/// One rank's training, with buckets of one parameter each unless `bucket_bytes` says otherwise.
struct WindowRun {
  WindowRun(Context& ranks, AlgorithmKind kind, std::uint64_t seed,
            std::int64_t steps_per_round = 1, std::int64_t bucket_bytes = 32)
      : context(ranks),
        problem(LeastSquares::of_rank(ranks.rank())),
        point(seed),
        sgd(point.parameters(), kWindowRate),
        optimizer(ranks.shared_from_this(), sgd, point,
                  {.algorithm = kind,
                   .schedule = window_schedule(kind, ranks.size()),
                   .num_steps_per_communication = steps_per_round,
                   .bucket_bytes = bucket_bytes}) {}

  void train_once() { train(optimizer, point, problem); }
  void average_once() {
    optimizer.zero_grad();
    optimizer.step();
  }
  /// Every rank `call`s, one after the other.
  void in_turn(const std::function<void()>& call) {
    for (int rank = 0; rank < context.size(); ++rank) {
      if (rank == context.rank()) {
        call();
      }
      ops::barrier(context);
    }
  }
  /// Sets the parameters, behind the optimizer's back.
  void set_point(const at::Tensor& x) const {
    const torch::NoGradGuard no_grad;
    point.first.copy_(x.slice(0, 0, 2));
    point.second.copy_(x.slice(0, 2, 6).view({2, 2}));
    point.third.copy_(x.slice(0, 6, 7));
  }
  [[nodiscard]] double weight() const {
    return optimizer.algorithm_state().front().tensor.item<double>();
  }

  Context& context;
  LeastSquares problem;
  Point point;
  torch::optim::SGD sgd;
  DistributedOptimizer optimizer;
};

std::uint64_t own_seed(const Context& context) {
  return static_cast<std::uint64_t>(context.rank());
}

at::Tensor total(Context& context, const at::Tensor& value) {
  at::Tensor sum = value.detach().clone();
  ops::AllreduceOptions options;
  options.reduction = ops::Reduction::Sum;
  ops::allreduce(context, optimizers::view_of(sum), options);
  return sum;
}

double total(Context& context, double value) {
  return total(context, at::full({1}, value, at::kDouble)).item<double>();
}

/// What all ranks hold, by the documentation's equations, where one rank steps at a time.
class Oracle {
 public:
  Oracle(AlgorithmKind kind, int size)
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
    if (kind_ == AlgorithmKind::AsyncPushSum) {
      push(rank, w);
      return;
    }
    published_[index(rank)] = psi.clone();
    for (const int reader : w.out_neighbors(rank)) {
      put_[index(reader)][index(rank)] = psi.clone();
    }
    at::Tensor sum = w.weight(rank, rank) * psi;
    for (const int source : w.in_neighbors(rank)) {
      sum = sum + w.weight(rank, source) * (kind_ == AlgorithmKind::WinPut
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

  AlgorithmKind kind_;
  Schedule schedule_;
  at::Tensor x_;
  std::vector<double> w_;
  std::vector<std::int64_t> rounds_;
  std::vector<at::Tensor> published_;
  std::vector<std::vector<at::Tensor>> put_;
  std::vector<at::Tensor> pushed_;
  std::vector<double> pushed_w_;
};

/// Calls `step(rank)` for ranks that are drawn, rank 0 more often than others, on all ranks alike.
/// One rank steps at a time; the others call nothing meanwhile.
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
    for (const AlgorithmKind kind : kWindowKinds) {
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
    for (const AlgorithmKind kind : kWindowKinds) {
      WindowRun run(context, kind, 3);
      WindowRun plain(context, AlgorithmKind::None, 3);
      for (int step = 0; step < 5; ++step) {
        run.train_once();
        plain.train_once();
      }
      run.optimizer.finish();
      EXPECT_SAME(run.point.x(), plain.point.x()) << name_of(kind);
    }
  });
}

// Rank 0 computes, and calls nothing, until the others have made all their steps.
TEST(WindowOptimizers, NobodyWaitsForASlowRank) {
  on_ranks({.at_least = 2}, [](Context& context) {
    for (const AlgorithmKind kind : kWindowKinds) {
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
    for (const AlgorithmKind kind : kWindowKinds) {
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
        if (kind == AlgorithmKind::AsyncPushSum) {
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
      if (kind == AlgorithmKind::AsyncPushSum) {
        EXPECT_NEAR(total(context, weight), context.size(), 1e-12);
      }
      ops::barrier(context);
    }
  });
}

// Whatever the ranks' speeds, Σ w is n, and Σ x moves by the steps alone; without steps all ranks
// meet at Σ x / n.
TEST(WindowOptimizers, AsyncPushSumConservesTheSums) {
  on_ranks([](Context& context) {
    WindowRun run(context, AlgorithmKind::AsyncPushSum, own_seed(context), 1, 1 << 20);
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
    // 30 steps, each of which rounds a few times.
    EXPECT_EQ(difference(run.point.x(), total(context, expected) / context.size(), 1e-10), "");
  });
}

/// √((1/n) Σ ‖x_i − x̄‖²).
double disagreement(Context& context, const at::Tensor& x) {
  const at::Tensor mean = total(context, x) / context.size();
  return std::sqrt(squared_distance(context, x, mean) / context.size());
}

TEST(WindowOptimizers, RanksAgreeAsTheStepSizeGoesDown) {
  on_ranks(some_ranks(2), [](Context& context) {
    for (const AlgorithmKind kind : kWindowKinds) {
      SCOPED_TRACE(name_of(kind));
      WindowRun run(context, kind, own_seed(context));
      std::vector<double> distances;
      for (const double rate : {1e-2, 1e-4}) {
        for (auto& group : run.sgd.param_groups()) {
          static_cast<torch::optim::SGDOptions&>(group.options()).lr(rate);
        }
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

// What neighbours have sent before a restart does not reach the values that are set then.
TEST(WindowOptimizers, RestartForgetsWhatHasComeIn) {
  on_ranks({.at_least = 2}, [](Context& context) {
    for (const AlgorithmKind kind : kWindowKinds) {
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
      if (kind == AlgorithmKind::AsyncPushSum) {
        run.optimizer.drain();
        ops::barrier(context);
        EXPECT_NEAR(total(context, run.weight()), context.size(), 1e-12);
      }
      ops::barrier(context);
    }
  });
}

// Where ranks step one after the other a run that resumes has the same bits.
TEST(WindowOptimizers, GoOnFromASavedState) {
  on_ranks(some_ranks(), [](Context& context) {
    for (const AlgorithmKind kind : kWindowKinds) {
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
      if (kind != AlgorithmKind::AsyncPushSum) {
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
    for (const AlgorithmKind kind : kWindowKinds) {
      SCOPED_TRACE(name_of(kind));
      const bool pushes = kind == AlgorithmKind::AsyncPushSum;
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
    options.algorithm = AlgorithmKind::AsyncPushSum;
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
