// Replicas sum their gradients while the last backward pass goes on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/torch.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "pipeline/pipeline.hpp"
#include "tests/bodies/pipeline/support.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/ranks.hpp"

namespace bluefog::testing {
namespace {

using pipeline::Pipeline;
using ::testing::HasSubstr;

/// The gradients of some steps, of this rank's stage.
std::vector<at::Tensor> stepped_gradients(Context& context, int stages, std::int64_t bucket_bytes) {
  auto model = five_layers();
  Pipeline pipeline(context.shared_from_this(), model.ptr(), squares,
                    {.stages = stages, .micro_batches = 3, .bucket_bytes = bucket_bytes});
  torch::optim::SGD sgd(model->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  std::vector<at::Tensor> found;
  for (std::uint64_t step = 0; step < 3; ++step) {
    const AllRows rows(11, 60 + step);
    pipeline.step(sgd, rows.of(pipeline.layout(), context.rank()));
    for (const auto& [name, tensor] : pipeline.trained_parameters()) {
      found.push_back(tensor.grad().clone());
    }
  }
  return found;
}

TEST(GradientSums, BucketsChangeNoBit) {
  on_ranks(pipeline_ranks(2), [](Context& context) {
    for (const int stages : stages_on(context.size())) {
      const auto whole = stepped_gradients(context, stages, std::int64_t{1} << 30);
      EXPECT_FALSE(whole.empty());
      for (const std::int64_t bytes : {0, 700}) {
        const auto found = stepped_gradients(context, stages, bytes);
        ASSERT_EQ(found.size(), whole.size());
        for (std::size_t i = 0; i < found.size(); ++i) {
          EXPECT_TRUE(found[i].equal(whole[i])) << i << " in buckets of " << bytes << " bytes";
        }
      }
    }
  });
}

/// The identity, whose backward pass calls a function.
class Watched : public torch::autograd::Function<Watched> {
 public:
  using Call = std::function<void()>;

  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& values,
                            std::int64_t call) {
    context->saved_data["call"] = call;
    return values.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    (*reinterpret_cast<const Call*>(context->saved_data["call"].toInt()))();
    return {gradients[0], at::Tensor()};
  }
};

struct WatchImpl : torch::nn::Module {
  explicit WatchImpl(Watched::Call given) : call(std::move(given)) {}
  at::Tensor forward(const at::Tensor& values) {
    return Watched::apply(values, reinterpret_cast<std::int64_t>(&call));
  }
  Watched::Call call;
};
TORCH_MODULE(Watch);

/// Two linear layers in float64, and a function that is called between their backward passes.
struct WatchedModel {
  explicit WatchedModel(Watched::Call call)
      : last(torch::nn::LinearOptions(4, 2).bias(false)),
        model(torch::nn::Linear(4, 4), Watch(std::move(call)), last) {
    model->to(at::kDouble);
    const torch::NoGradGuard no_grad;
    for (at::Tensor& parameter : model->parameters()) {
      parameter.fill_(0.25);
    }
  }
  torch::nn::Linear last;
  torch::nn::Sequential model;
};

/// One row on each rank, whose gradient differs from the others'.
pipeline::PipelineBatch row_of_rank(const Context& context) {
  return {.inputs = at::ones({1, 4}, at::kDouble),
          .targets = at::full({1, 2}, context.rank(), at::kDouble),
          .rows = 1};
}

/// Whether the value becomes `expected` before the deadline of a test; another thread writes it.
bool becomes(double& value, double expected) {
  constexpr std::chrono::seconds kLongest(20);
  const auto end = std::chrono::steady_clock::now() + kLongest;
  while (std::atomic_ref(value).load() != expected) {
    if (std::chrono::steady_clock::now() > end) {
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

/// The pass stays in front of the first layer until the gradient of the last one is the sum over the
/// replicas: where sums followed the passes, it would wait in vain.
TEST(GradientSums, ABucketIsSummedBeforeTheBackwardPassEnds) {
  on_ranks(pipeline_ranks(2), [](Context& context) {
    // Outputs are 4 × 0.25 × (4 × 0.25 + 0.25) = 1.25, so that the first layer's are 1.25 too; the
    // loss is the sum of squares of two outputs, and each rank's counts 1/n.
    const int size = context.size();
    double expected = 0;
    for (int rank = 0; rank < size; ++rank) {
      expected += 1.0 / size * (2 * (1.25 - rank)) * 1.25;
    }
    std::vector<bool> seen;
    WatchedModel* watched = nullptr;
    WatchedModel own([&] {
      double* const gradient = watched->last->weight.grad().data_ptr<double>();
      seen.push_back(becomes(*gradient, expected));
    });
    watched = &own;
    Pipeline pipeline(context.shared_from_this(), own.model.ptr(), squares, {.bucket_bytes = 0});
    const auto times = pipeline.compute_gradients(row_of_rank(context)).times;
    EXPECT_EQ(seen, std::vector<bool>{true});
    EXPECT_GT(times.averaging_whole, times.averaging);
  });
}

/// Micro-batches before the last one send nothing.
TEST(GradientSums, TheLastBackwardPassAloneBeginsThem) {
  on_ranks(pipeline_ranks(2), [](Context& context) {
    auto model = five_layers();
    Pipeline pipeline(context.shared_from_this(), model.ptr(), squares,
                      {.micro_batches = 4, .bucket_bytes = 0});
    for (const std::int64_t count : {13, 8, 3}) {  // of three rows the fourth rank has none
      const AllRows rows(count, static_cast<std::uint64_t>(count));
      pipeline.compute_gradients(rows.of(pipeline.layout(), context.rank()));
      auto reference = five_layers();
      squares(reference->forward(rows.inputs), rows.targets).backward();
      expect_gradients(pipeline, reference);
    }
  });
}

/// As a reentrant checkpoint does, which comes to a parameter once more.
TEST(GradientSums, AGradientThatChangesAfterItHasLeftIsNamed) {
  on_ranks(pipeline_ranks(2), [](Context& context) {
    WatchedModel* watched = nullptr;
    WatchedModel own([&] {
      if (context.rank() == 0) {
        const at::AutoGradMode grad(true);
        watched->last->weight.sum().backward();
      }
    });
    watched = &own;
    Pipeline pipeline(context.shared_from_this(), own.model.ptr(), squares, {.bucket_bytes = 0});
    const auto step = [&] { pipeline.compute_gradients(row_of_rank(context)); };
    if (context.rank() == 0) {
      EXPECT_THAT(
          error_of<StateError>(step),
          HasSubstr("parameter '2.weight': its gradient changed after its sum with the replicas"));
    } else {
      error_of<PeerFailure>(step);
    }
  });
}

/// A hook of somebody else's stays theirs, and gradients are what they are.
class Silent final : public torch::autograd::PostAccumulateGradHook {
 public:
  explicit Silent(int& calls) : calls_(calls) {}
  void operator()(const torch::autograd::Variable& /*parameter*/) override { ++calls_; }

 private:
  int& calls_;
};

TEST(GradientSums, AHookOfSomebodyElseIsLeft) {
  on_ranks(pipeline_ranks(2), [](Context& context) {
    int calls = 0;
    auto model = five_layers();
    torch::autograd::impl::set_post_acc_grad_hooks(model->parameters().front(),
                                                   std::make_unique<Silent>(calls));
    Pipeline pipeline(context.shared_from_this(), model.ptr(), squares,
                      {.micro_batches = 2, .bucket_bytes = 0});
    const AllRows rows(4 * context.size());
    pipeline.compute_gradients(rows.of(pipeline.layout(), context.rank()));
    EXPECT_EQ(calls, 2);
    auto reference = five_layers();
    squares(reference->forward(rows.inputs), rows.targets).backward();
    expect_gradients(pipeline, reference);
  });
}

TEST(GradientSums, BucketsOfLessThanNothingAreRefused) {
  on_ranks(pipeline_ranks(1, 1), [](Context& context) {
    auto model = five_layers();
    EXPECT_THAT(error_of<InvalidArgument>([&] {
                  Pipeline(context.shared_from_this(), model.ptr(), squares, {.bucket_bytes = -1});
                }),
                HasSubstr("expected buckets of 0 bytes or more, found -1"));
  });
}

}  // namespace
}  // namespace bluefog::testing
