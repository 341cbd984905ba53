// Parameters that the caller sets while an average of adapt-with-combine is in flight.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "tests/bodies/optimizers/support.hpp"
#include "tests/support/error_of.hpp"

namespace bluefog::testing {
namespace {

using optimizers::AlgorithmName;
using optimizers::DistributedOptimizer;
using optimizers::DistributedOptimizerOptions;
using ::testing::HasSubstr;

constexpr double kSetValue = 50.0;

at::Tensor doubles(at::IntArrayRef sizes, double value) {
  return at::full(sizes, value, at::kDouble);
}

/// Two parameters that hold the rank, in a bucket, and a third one in another.
struct SetRun {
  explicit SetRun(Context& context, double rate = 0.0)
      : rank(context.rank()),
        a(bag.add("a", doubles({3}, rank))),
        b(bag.add("b", doubles({3}, rank))),
        c(bag.add("c", doubles({30}, rank))),
        sgd(bag.parameters(), rate),
        optimizer(context.shared_from_this(), sgd, bag, options_of(context)) {}

  static DistributedOptimizerOptions options_of(const Context& context) {
    DistributedOptimizerOptions options = full_averaging(context, AlgorithmName::AdaptWithCombine);
    options.bucket_bytes = 128;
    return options;
  }

  void step() {
    optimizer.zero_grad();
    (a.sum() + b.sum() + c.sum()).backward();
    optimizer.step();
  }

  // Version counters do not see it, as they do not see `data` in Python.
  static void set(const at::Tensor& parameter, double value) {
    parameter.variable_data().fill_(value);
  }

  double rank;
  Bag bag;
  at::Tensor a;
  at::Tensor b;
  at::Tensor c;
  torch::optim::SGD sgd;
  DistributedOptimizer optimizer;
};

TEST(SetValues, StayWhereTheAverageInFlightWouldCome) {
  on_ranks(some_ranks(2), [](Context& context) {
    for (const bool by_step : {true, false}) {
      SetRun run(context);
      run.step();
      if (context.rank() == 0) {
        SetRun::set(run.a, kSetValue);
        SetRun::set(run.c, kSetValue);
      }
      by_step ? run.step() : run.optimizer.drain();
      const double mean = mean_rank(context);
      EXPECT_CLOSE(run.a, doubles({3}, context.rank() == 0 ? kSetValue : mean));
      EXPECT_CLOSE(run.c, doubles({30}, context.rank() == 0 ? kSetValue : mean));
      EXPECT_CLOSE(run.b, doubles({3}, mean));
    }
  });
}

TEST(SetValues, AfterEveryRoundAreRefused) {
  on_ranks(some_ranks(), [](Context& context) {
    SetRun run(context);
    run.step();
    SetRun::set(run.b, 100);
    run.step();
    SetRun::set(run.b, 200);
    EXPECT_THAT(error_of<StateError>([&] { run.step(); }),
                HasSubstr("parameter 'b': expected values that are set between steps now and then, "
                          "found new ones after 2 rounds in a row"));
    run.step();
    for (int round = 0; round < 3; ++round) {
      run.optimizer.drain();
      SetRun::set(run.b, round);
      run.step();
    }
  });
}

TEST(SetValues, ComeBeforeARestartAndBeforeStateThatIsLoaded) {
  on_ranks(some_ranks(), [](Context& context) {
    std::stringstream saved;
    {
      SetRun run(context);
      run.step();
      torch::serialize::OutputArchive archive;
      run.optimizer.save(archive);
      archive.save_to(saved);
    }
    for (const bool by_restart : {true, false}) {
      SetRun run(context);
      run.step();
      SetRun::set(run.a, kSetValue);
      // c is set to what it is: what is in flight is not for it either.
      if (by_restart) {
        run.optimizer.restart();
      } else {
        torch::serialize::InputArchive archive;
        saved.clear();
        saved.seekg(0);
        archive.load_from(saved);
        run.optimizer.load(archive);
      }
      EXPECT_SAME(run.a, doubles({3}, kSetValue));
      EXPECT_SAME(run.c, doubles({30}, context.rank()));
      run.optimizer.drain();
      EXPECT_SAME(run.c, doubles({30}, context.rank()));
    }
  });
}

TEST(SetValues, AreRefusedUntilARestartWhereCorrectionsBelongToOthers) {
  for (const char* const algorithm : {"extra", "exact_diffusion", "d2", "decent_lam"}) {
    SCOPED_TRACE(algorithm);
    on_ranks(some_ranks(2), [&](Context& context) {
      torch::nn::Linear model(2, 1);
      torch::optim::SGD sgd(model->parameters(), 0.0);
      DistributedOptimizerOptions options;
      options.algorithm = algorithm;
      options.momentum = 0.0;
      DistributedOptimizer optimizer(context.shared_from_this(), sgd, *model, options);
      const auto step = [&] {
        optimizer.zero_grad();
        model(torch::ones({1, 2})).sum().backward();
        optimizer.step();
      };
      const auto set = [&] {
        const torch::NoGradGuard no_grad;
        model->weight.data().fill_(kSetValue);
        model->bias.fill_(kSetValue);
      };
      set();
      step();
      step();
      if (context.rank() == 1) {
        set();
        model->bias.data().add_(1.0);
      }
      for (int again = 0; again < 2; ++again) {
        try {
          step();
          EXPECT_NE(context.rank(), 1) << "expected an error";
        } catch (const Error& error) {  // of others those that hear this rank
          EXPECT_THAT(error.what(), HasSubstr(fmt::format("rank 1, {}, parameter 'bias': expected "
                                                          "the value that the last step left",
                                                          algorithm)));
        }
      }
      set();
      optimizer.restart();
      for (int again = 0; again < 3; ++again) {
        step();
        EXPECT_TRUE(model->weight.eq(kSetValue).all().item<bool>());
        EXPECT_TRUE(model->bias.eq(kSetValue).all().item<bool>());
      }
    });
  }
}

/// Steps all parameters in one call, by 1.
class StepsByOne final : public torch::optim::Optimizer {
 public:
  StepsByOne(const std::vector<at::Tensor>& parameters, bool gives_new_memory)
      : Optimizer(parameters, std::make_unique<torch::optim::SGDOptions>(0.0)),
        gives_new_memory_(gives_new_memory) {}

  at::Tensor step(LossClosure /*closure*/ = nullptr) override {
    const torch::NoGradGuard no_grad;
    for (auto& group : param_groups()) {
      for (at::Tensor& parameter : group.params()) {
        gives_new_memory_ ? parameter.set_data(parameter - 1) : (void)parameter.sub_(1);
      }
    }
    return {};
  }

 private:
  bool gives_new_memory_;
};

TEST(SetValues, AreNotThoseOfAnOptimizerThatStepsAllParametersAtOnce) {
  on_ranks(some_ranks(), [](Context& context) {
    for (const std::string algorithm : {"adapt_with_combine", "adapt_then_combine", "ceca"}) {
      for (const bool gives_new_memory : {false, true}) {
        Bag bag;
        const at::Tensor a = bag.add("a", doubles({3}, context.rank()));
        const at::Tensor b = bag.add("b", doubles({30}, context.rank()));
        StepsByOne steps(bag.parameters(), gives_new_memory);
        DistributedOptimizerOptions options = full_averaging(context, algorithm);
        if (algorithm == "ceca") {
          options.schedule.reset();  // its own: the mean after at most 3 rounds of 8 ranks
        }
        options.stepping = optimizers::Stepping::Whole;
        DistributedOptimizer optimizer(context.shared_from_this(), steps, bag, options);
        for (int step = 0; step < 3; ++step) {
          optimizer.step();
        }
        optimizer.drain();
        EXPECT_CLOSE(a, doubles({3}, mean_rank(context) - 3));
        EXPECT_CLOSE(b, doubles({30}, mean_rank(context) - 3));
      }
    }
  });
}

}  // namespace
}  // namespace bluefog::testing
