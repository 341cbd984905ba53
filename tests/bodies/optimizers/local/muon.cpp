// Muon: what it does to matrices, alone and as the local step of algorithms.
#include "optimizers/muon.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <sstream>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "ops/neighbor_allreduce.hpp"
#include "tests/bodies/optimizers/support.hpp"
#include "tests/support/error_of.hpp"

namespace bluefog::testing {
namespace {

using optimizers::AlgorithmName;
using optimizers::DistributedOptimizer;
using optimizers::Muon;
using optimizers::MuonOptions;
using optimizers::MuonRate;
using ::testing::HasSubstr;

MuonOptions without_decay() {
  MuonOptions options(1.0);
  options.weight_decay = 0.0;
  return options;
}

/// Products of bfloat16 may round the other way in memory that lies otherwise, which moves a step by
/// some hundredths of its length; a step by other gradients moves it by much more.
void expect_steps(const at::Tensor& found, const at::Tensor& expected, double rate) {
  EXPECT_EQ(difference(found, expected, 0.1 * rate), "");
}

/// The change that the first step makes of zeros.
at::Tensor first_step(const at::Tensor& gradient, const MuonOptions& options) {
  const at::Tensor x = at::zeros_like(gradient).requires_grad_();
  Muon optimizer({x}, options);
  x.mutable_grad() = gradient;
  optimizer.step();
  return x.detach();
}

TEST(Muon, StepsAreNearlyOrthogonalWhateverTheScaleAndShape) {
  on_ranks(some_ranks(), [](Context&) {
    for (const std::vector<std::int64_t>& shape :
         {std::vector<std::int64_t>{6, 6}, {4, 9}, {9, 4}, {1, 5}}) {
      for (const double scale : {1e-6, 1.0, 1e6}) {
        MuonOptions options = without_decay();
        const at::Tensor gradient = random(shape, 7) * scale;
        const at::Tensor moved = first_step(gradient, options);
        const double factor =
            std::sqrt(std::max(1.0, static_cast<double>(shape[0]) / static_cast<double>(shape[1])));
        const at::Tensor values = std::get<1>(at::linalg_svd(moved / factor));
        EXPECT_GT(values.min().item<double>(), 0.5) << scale;
        EXPECT_LT(values.max().item<double>(), 1.3) << scale;
        // Against the gradient, whose own basis it keeps.
        EXPECT_LT((moved * gradient).sum().item<double>(), 0.0);
      }
    }
    EXPECT_SAME(first_step(at::zeros({3, 3}, at::kDouble), without_decay()),
                at::zeros({3, 3}, at::kDouble));
  });
}

TEST(Muon, RatesGoByTheShape) {
  on_ranks(some_ranks(), [](Context&) {
    const at::Tensor gradient = random({9, 4}, 3);
    MuonOptions options = without_decay();
    const at::Tensor original = first_step(gradient, options);
    options.rate = MuonRate::MatchRmsAdamW;
    expect_steps(first_step(gradient, options), original / 1.5 * 0.2 * 3.0, 0.6);
    options.lr = 0.5;
    expect_steps(first_step(gradient, options), original / 1.5 * 0.2 * 1.5, 0.3);
  });
}

TEST(Muon, DecayIsDecoupled) {
  on_ranks(some_ranks(), [](Context&) {
    const at::Tensor gradient = random({4, 4}, 3);
    MuonOptions options(0.25);
    options.weight_decay = 0.5;
    const at::Tensor x = random({4, 4}, 4).requires_grad_();
    const at::Tensor before = x.detach().clone();
    Muon optimizer({x}, options);
    x.mutable_grad() = gradient;
    optimizer.step();
    options.weight_decay = 0.0;
    expect_steps(x, before * 0.875 + first_step(gradient, options), 0.25);
  });
}

/// The momentum is over gradients, before the iteration: two steps are one with their sum.
TEST(Muon, MomentumIsBeforeTheIteration) {
  on_ranks(some_ranks(), [](Context&) {
    const at::Tensor one = random({4, 5}, 3);
    const at::Tensor two = random({4, 5}, 4);
    for (const bool nesterov : {false, true}) {
      MuonOptions options = without_decay();
      options.momentum = 0.5;
      options.nesterov = nesterov;
      const at::Tensor x = at::zeros({4, 5}, at::kDouble).requires_grad_();
      Muon optimizer({x}, options);
      x.mutable_grad() = one.clone();
      optimizer.step();
      const at::Tensor after_one = x.detach().clone();
      x.mutable_grad() = two.clone();
      optimizer.step();
      at::Tensor update = one * 0.25 + two * 0.5;
      if (nesterov) {
        update = two * 0.5 + update * 0.5;
      }
      options.momentum = 0.0;
      options.nesterov = false;
      expect_steps(x - after_one, first_step(update, options), 1.0);
    }
  });
}

TEST(Muon, AnArchiveGoesOn) {
  on_ranks(some_ranks(), [](Context&) {
    const auto run = [](Muon& optimizer, const at::Tensor& x, std::uint64_t from) {
      for (std::uint64_t step = from; step < from + 3; ++step) {
        x.mutable_grad() = random({3, 4}, step);
        optimizer.step();
      }
    };
    MuonOptions options(0.1);
    options.rate = MuonRate::MatchRmsAdamW;
    options.nesterov = false;
    options.ns_steps = 4;
    options.ns_coefficients = {3.0, -4.0, 2.0};
    const at::Tensor x = random({3, 4}, 9).requires_grad_();
    Muon first({x}, options);
    run(first, x, 0);
    std::stringstream bytes;
    torch::save(first, bytes);
    const at::Tensor y = x.detach().clone().requires_grad_();
    Muon second({y});
    torch::load(second, bytes);
    run(first, x, 3);
    run(second, y, 3);
    expect_steps(y, x, 0.1);
    const auto& read = static_cast<const MuonOptions&>(second.param_groups().front().options());
    EXPECT_EQ(read.ns_coefficients, options.ns_coefficients);
    EXPECT_EQ(read.ns_steps, 4);
    EXPECT_FALSE(read.nesterov);
    EXPECT_EQ(read.rate, MuonRate::MatchRmsAdamW);
    EXPECT_EQ(read.get_lr(), 0.1);
  });
}

/// Two matrices, of which each is a bucket.
struct Matrices : torch::nn::Module {
  explicit Matrices(std::uint64_t seed)
      : wide(register_parameter("wide", random({3, 5}, seed))),
        tall(register_parameter("tall", random({5, 3}, seed + 1))) {}
  [[nodiscard]] at::Tensor loss(int rank) const {
    return (wide.matmul(tall) - random({3, 3}, 50 + static_cast<std::uint64_t>(rank)))
        .square()
        .sum();
  }
  at::Tensor wide;
  at::Tensor tall;
};

void make_step(torch::optim::Optimizer& optimizer, const Matrices& model, int rank) {
  optimizer.zero_grad();
  model.loss(rank).backward();
  optimizer.step();
}

TEST(Muon, AdaptThenCombineIsAStepAndAnAverage) {
  on_ranks(some_ranks(), [](Context& context) {
    const auto plan = std::make_shared<const NeighborPlan>(
        topology::ring(context.size()).plan_for(context.rank()));
    const Matrices model(0);
    const Matrices alone(0);
    Muon wrapped(model.parameters(), MuonOptions(0.02));
    Muon reference(alone.parameters(), MuonOptions(0.02));
    optimizers::DistributedOptimizerOptions options;
    options.schedule = topology::static_schedule(topology::ring(context.size()));
    options.bucket_bytes = 32;
    DistributedOptimizer optimizer(context.shared_from_this(), wrapped, model, options);
    for (int step = 0; step < 4; ++step) {
      optimizer.zero_grad();
      model.loss(context.rank()).backward();
      optimizer.step();
      make_step(reference, alone, context.rank());
      for (const at::Tensor& parameter : alone.parameters()) {
        ops::neighbor_allreduce(context, optimizers::view_of(parameter), plan);
      }
      expect_steps(model.wide, alone.wide, 0.02);
      expect_steps(model.tall, alone.tall, 0.02);
    }
  });
}

/// All ranks of gradient tracking over W = J, whose estimates y replace the gradients that Muon
/// has momentum over and makes orthogonal.
class TrackedTogether {
 public:
  explicit TrackedTogether(int size) {
    for (int rank = 0; rank < size; ++rank) {
      models_.push_back(std::make_unique<Matrices>(0));
      muons_.push_back(std::make_unique<Muon>(models_.back()->parameters(), MuonOptions(0.02)));
    }
  }

  void step() {
    const std::vector<std::vector<at::Tensor>> gradients = own_gradients();
    for (std::size_t p = 0; p < 2; ++p) {
      const at::Tensor mean = tracked_.empty() ? at::Tensor() : mean_of(tracked_, p);
      for (std::size_t rank = 0; rank < models_.size(); ++rank) {
        const at::Tensor y = tracked_.empty() ? gradients[rank][p].clone()
                                              : mean - before_[rank][p] + gradients[rank][p];
        models_[rank]->parameters()[p].mutable_grad() = y;
      }
    }
    tracked_ = before_ = gradients;  // of the same form
    for (std::size_t rank = 0; rank < models_.size(); ++rank) {
      for (std::size_t p = 0; p < 2; ++p) {
        tracked_[rank][p] = models_[rank]->parameters()[p].grad().clone();
      }
      muons_[rank]->step();
    }
    average();
  }

  [[nodiscard]] const Matrices& model(int rank) const {
    return *models_[static_cast<std::size_t>(rank)];
  }

 private:
  std::vector<std::vector<at::Tensor>> own_gradients() {
    std::vector<std::vector<at::Tensor>> found;
    for (std::size_t rank = 0; rank < models_.size(); ++rank) {
      muons_[rank]->zero_grad();
      models_[rank]->loss(static_cast<int>(rank)).backward();
      found.push_back({models_[rank]->wide.grad(), models_[rank]->tall.grad()});
    }
    return found;
  }
  static at::Tensor mean_of(const std::vector<std::vector<at::Tensor>>& all, std::size_t p) {
    at::Tensor sum = at::zeros_like(all[0][p]);
    for (const auto& of_rank : all) {
      sum += of_rank[p];
    }
    return sum / static_cast<double>(all.size());
  }
  void average() {
    const torch::NoGradGuard no_grad;
    std::vector<std::vector<at::Tensor>> all;
    for (const auto& model : models_) {
      all.push_back({model->wide, model->tall});
    }
    const std::vector<at::Tensor> means{mean_of(all, 0), mean_of(all, 1)};
    for (const auto& of_rank : all) {
      of_rank[0].copy_(means[0]);
      of_rank[1].copy_(means[1]);
    }
  }

  std::vector<std::unique_ptr<Matrices>> models_;
  std::vector<std::unique_ptr<Muon>> muons_;
  std::vector<std::vector<at::Tensor>> tracked_;
  std::vector<std::vector<at::Tensor>> before_;
};

TEST(Muon, GradientsAreTrackedBeforeTheIteration) {
  on_ranks(some_ranks(2), [](Context& context) {
    const Matrices model(0);
    Muon wrapped(model.parameters(), MuonOptions(0.02));
    DistributedOptimizer optimizer(context.shared_from_this(), wrapped, model,
                                   full_averaging(context, AlgorithmName::GradientTracking));
    TrackedTogether together(context.size());
    for (int step = 0; step < 5; ++step) {
      optimizer.zero_grad();
      model.loss(context.rank()).backward();
      optimizer.step();
      together.step();
      expect_steps(model.wide, together.model(context.rank()).wide, 0.02);
      expect_steps(model.tall, together.model(context.rank()).tall, 0.02);
    }
  });
}

TEST(Muon, ParametersThatAreNoMatricesAreNamed) {
  on_ranks(some_ranks(), [](Context&) {
    torch::nn::Linear linear(3, 2);
    EXPECT_EQ(error_of<InvalidArgument>([&] { Muon(optimizers::named_parameters(*linear)); }),
              "Muon: 'bias': expected real matrices, of 2 dimensions, found float32[2]; give other "
              "parameters to another optimizer, such as AdamW");
    EXPECT_THAT(error_of<InvalidArgument>([&] { Muon(linear->parameters()); }),
                HasSubstr("Muon: parameter 1 of group 0: expected real matrices"));
    EXPECT_THAT(error_of<InvalidArgument>([&] {
                  Muon(std::vector<at::Tensor>{at::zeros({2, 2}, at::kComplexFloat)});
                }),
                HasSubstr("parameter 0 of group 0: expected real matrices"));
    Muon named(optimizers::NamedTensors{{"weight", linear->weight}});
    EXPECT_EQ(named.param_groups().front().params().size(), 1);
  });
}

TEST(Muon, OptionsOutOfRangeAreRefused) {
  on_ranks(some_ranks(), [](Context&) {
    const at::Tensor x = random({2, 2}, 1);
    const auto refused = [&](const std::function<void(MuonOptions&)>& change) {
      MuonOptions options;
      change(options);
      return error_of<InvalidArgument>([&] { Muon({x}, options); });
    };
    EXPECT_EQ(refused([](auto& options) { options.lr = -1; }),
              "Muon: lr: expected a finite number of at least 0, found -1");
    EXPECT_THAT(refused([](auto& options) { options.weight_decay = -1; }),
                HasSubstr("weight_decay: "));
    EXPECT_THAT(refused([](auto& options) { options.momentum = -0.5; }), HasSubstr("momentum: "));
    EXPECT_THAT(refused([](auto& options) { options.eps = -1; }), HasSubstr("eps: "));
    EXPECT_THAT(refused([](auto& options) { options.ns_steps = 100; }),
                HasSubstr("ns_steps: expected a number from 0 to 99, found 100"));
    const at::Tensor y = random({2, 2}, 1).requires_grad_();
    Muon optimizer({y});
    y.mutable_grad() = at::ones({2, 2}, at::kDouble).to_sparse();
    EXPECT_EQ(error_of<UnsupportedError>([&] { optimizer.step(); }),
              "Muon: expected dense gradients, found sparse ones");
  });
}

}  // namespace
}  // namespace bluefog::testing
