// Models and batches that no pipeline takes, and ranks that fail: errors on all ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <memory>
#include <string>

#include "bluefog_cpp/error.hpp"
#include "ops/collectives.hpp"
#include "pipeline/pipeline.hpp"
#include "tests/bodies/failure_of.hpp"
#include "tests/bodies/pipeline/support.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/ranks.hpp"

namespace bluefog::testing {
namespace {

using pipeline::Loss;
using pipeline::Pipeline;
using pipeline::PipelineOptions;
using ::testing::HasSubstr;

using Module = std::shared_ptr<torch::nn::Module>;

std::string refusal(Context& context, const Module& model, const PipelineOptions& options,
                    const Loss& loss = squares) {
  const std::string text = error_of<InvalidArgument>(
      [&] { Pipeline(context.shared_from_this(), model, loss, options); });
  ops::barrier(context);  // it stays usable
  return text;
}

TEST(RefusedPipeline, ModelsAndOptionsThatNoPipelineTakes) {
  on_ranks(pipeline_ranks(), [](Context& context) {
    const auto model = [] { return five_layers().ptr(); };
    EXPECT_THAT(refusal(context, nullptr, {}), HasSubstr("expected a model, found a null pointer"));
    EXPECT_THAT(refusal(context, std::make_shared<torch::nn::LinearImpl>(2, 2), {}),
                HasSubstr("expected a model that is a sequence (torch::nn::Sequential), found a "
                          "torch::nn::LinearImpl"));
    EXPECT_THAT(refusal(context, model(), {}, nullptr), HasSubstr("expected a loss, found none"));
    EXPECT_THAT(refusal(context, model(), {.micro_batches = -1}),
                HasSubstr("expected 0 micro-batches or more, found -1"));
    EXPECT_THAT(refusal(context, model(), {.stages = context.size() + 1}),
                HasSubstr("expected a number of stages that divides the"));
    EXPECT_THAT(refusal(context, model(), {.costs = {1, 2}}),
                HasSubstr("expected the costs of 8 layers, found 2"));
    torch::nn::Sequential mixed(torch::nn::Linear(2, 2), torch::nn::Linear(2, 2));
    mixed->ptr(1)->to(at::kDouble);
    EXPECT_THAT(refusal(context, mixed.ptr(), {}),
                HasSubstr("expected parameters of one dtype, found 1.weight to be float64[2, 2]"));
    torch::nn::Linear linear(2, 2);
    EXPECT_THAT(refusal(context, torch::nn::Sequential(linear, linear).ptr(), {}),
                HasSubstr("expected layers that share no tensor, found 1.weight to be 0.weight"));
  });
}

TEST(RefusedPipeline, MoreStagesThanLayersAndStagesWithoutParameters) {
  on_ranks(pipeline_ranks(2), [](Context& context) {
    const int stages = context.size();
    EXPECT_THAT(
        refusal(context, torch::nn::Sequential(torch::nn::Linear(2, 2)).ptr(), {.stages = stages}),
        HasSubstr("expected 1 to 1 stages (1 layers in 1 groups"));
    torch::nn::Sequential model(torch::nn::Linear(2, 2), torch::nn::Tanh(), torch::nn::Tanh(),
                                torch::nn::Tanh());
    EXPECT_THAT(refusal(context, model.ptr(), {.stages = stages, .costs = {1, 1, 1, 1}}),
                HasSubstr("expected stages with parameters, found stage 1"));
  });
}

TEST(RefusedPipeline, AProblemOfOneRankIsHeardOfByAll) {
  on_ranks(pipeline_ranks(2), [](Context& context) {
    auto model = five_layers();
    const Module own = context.rank() == 1 ? Module() : model.ptr();
    const auto call = [&] { Pipeline(context.shared_from_this(), own, squares); };
    if (context.rank() == 1) {
      EXPECT_THROW(call(), InvalidArgument);
    } else {
      EXPECT_THAT(error_of<PeerFailure>(call), HasSubstr("expected a model, found a null pointer"));
    }
  });
}

TEST(RefusedPipeline, ModelsAndOptionsThatDifferAreAMismatch) {
  on_ranks(pipeline_ranks(2), [](Context& context) {
    auto model = five_layers();
    EXPECT_THAT(error_of<MismatchError>([&] {
                  Pipeline(context.shared_from_this(), model.ptr(), squares,
                           {.micro_batches = 1 + context.rank() % 2});
                }),
                HasSubstr("micro-batches"));
    torch::nn::Sequential other(torch::nn::Linear(3 + context.rank(), 2));
    EXPECT_THAT(error_of<MismatchError>(
                    [&] { Pipeline(context.shared_from_this(), other.ptr(), squares); }),
                HasSubstr("0.weight float32[2, "));
  });
}

/// The error of rank `culprit`, an `Expected`, and PeerFailure or the end of their own calls on all
/// others. Then the pipeline refuses further steps, and the context makes another one.
template <typename Expected>
std::string failure_of_step(Context& context, int culprit,
                            const std::function<void(Pipeline&, torch::optim::Optimizer&)>& step) {
  auto model = five_layers();
  std::string text;
  {
    Pipeline pipeline(context.shared_from_this(), model.ptr(), squares,
                      {.stages = context.size(), .micro_batches = 4});
    torch::optim::SGD optimizer(model->parameters(), 0.1);
    if (context.rank() == culprit) {
      text = error_of<Expected>([&] { step(pipeline, optimizer); });
    } else {
      const auto [rank, said] = failure_of([&] { step(pipeline, optimizer); });
      EXPECT_NE(rank, -1) << said;
    }
    meet(context);  // nobody has heard of it by the end of a pipeline
    EXPECT_THAT(error_of<StateError>([&] { pipeline.average_replicas(); }),
                HasSubstr("an earlier error has ended"));
  }
  auto next = five_layers();
  Pipeline another(context.shared_from_this(), next.ptr(), squares, {.stages = context.size()});
  const AllRows rows(6);
  another.compute_gradients(rows.of(another.layout(), context.rank()));
  auto reference = five_layers();
  squares(reference->forward(rows.inputs), rows.targets).backward();
  expect_gradients(another, reference);
  return text;
}

TEST(RefusedPipeline, WrongBatchesEndTheStepOnAllRanks) {
  on_ranks(pipeline_ranks(2), [](Context& context) {
    const AllRows rows(8);
    const auto with = [&](const std::function<void(pipeline::PipelineBatch&)>& change) {
      return [&, change](Pipeline& pipeline, torch::optim::Optimizer& optimizer) {
        pipeline::PipelineBatch batch = rows.of(pipeline.layout(), context.rank());
        change(batch);
        pipeline.step(optimizer, batch);
      };
    };
    const int last = context.size() - 1;
    const bool is_first = context.rank() == 0;
    const bool is_last = context.rank() == last;
    const std::string inputs = failure_of_step<InvalidArgument>(context, 0, with([&](auto& batch) {
                                                                  if (is_first) {
                                                                    batch.inputs =
                                                                        batch.inputs.slice(0, 1);
                                                                  }
                                                                }));
    if (is_first) {
      EXPECT_THAT(inputs, HasSubstr("rank 0, Pipeline, stage 0: expected inputs of 8 rows, found "
                                    "float64[7, 6]"));
    }
    const std::string targets = failure_of_step<InvalidArgument>(
        context, last, with([&](auto& batch) { batch.targets = at::Tensor(); }));
    if (is_last) {
      EXPECT_THAT(targets, HasSubstr("expected targets, found none"));
    }
    const std::string features =
        failure_of_step<InvalidArgument>(context, 0, with([&](auto& batch) {
                                           if (is_first) {
                                             batch.inputs = batch.inputs.slice(1, 1);
                                           }
                                         }));
    if (is_first) {
      EXPECT_THAT(features, HasSubstr("layer 0 (torch::nn::LinearImpl): "));
    }
    const std::string negative = failure_of_step<InvalidArgument>(
        context, last, with([&](auto& batch) { batch.rows = is_last ? -1 : batch.rows; }));
    if (is_last) {
      EXPECT_THAT(negative, HasSubstr("expected 0 rows or more"));
    }
  });
}

/// Two stages whose calls differ: the second one's error. The first one gets PeerFailure, in a
/// call that needs the second one.
void expect_another_batch(Context& context, const std::function<void(Pipeline&)>& call,
                          const std::string& expected) {
  auto model = five_layers();
  Pipeline pipeline(context.shared_from_this(), model.ptr(), squares, {.stages = 2});
  const auto attempt = [&] { call(pipeline); };
  if (context.rank() == 1) {
    EXPECT_THAT(error_of<MismatchError>(attempt), HasSubstr(expected));
    meet(context);
    EXPECT_THROW(attempt(), StateError);
    return;
  }
  const auto [rank, text] = failure_of(attempt);
  meet(context);
  if (text == "no error") {
    EXPECT_EQ(failure_of([&] { static_cast<void>(pipeline.gradient_norms()); }).first, 1);
  } else {
    EXPECT_EQ(rank, 1) << text;
    EXPECT_THROW(attempt(), StateError);
  }
}

/// Micro-batches of one row each, so that no message has another size.
TEST(RefusedPipeline, RowsThatDifferBetweenStagesAreAMismatch) {
  on_ranks(pipeline_ranks(2, 2), [](Context& context) {
    const auto with_rows = [&](std::int64_t rows) {
      return [&context, rows](Pipeline& pipeline) {
        pipeline.compute_gradients(AllRows(rows).of(pipeline.layout(), context.rank()));
      };
    };
    const int rank = context.rank();
    expect_another_batch(context, with_rows(3 + rank),
                         "rank 1, stage 1: expected the batch of rank 0, a step of 3 rows in all "
                         "pipelines, of 3 rows in 3 micro-batches, found a step of 4 rows in all "
                         "pipelines, of 4 rows in 4 micro-batches");
    expect_another_batch(context, with_rows(4 - rank), "found a step of 3 rows");
    expect_another_batch(context, with_rows(rank), "of 0 rows in 0 micro-batches, found a step");
  });
}

TEST(RefusedPipeline, AStepOfSomeStagesAndAnEvaluationOfOthersAreAMismatch) {
  on_ranks(pipeline_ranks(2, 2), [](Context& context) {
    for (const int evaluating : {0, 1}) {
      const auto call = [&](Pipeline& pipeline) {
        const auto batch = AllRows(4).of(pipeline.layout(), context.rank());
        if (context.rank() == evaluating) {
          static_cast<void>(pipeline.evaluate(batch));
        } else {
          pipeline.compute_gradients(batch);
        }
      };
      expect_another_batch(context, call,
                           evaluating == 0 ? "an evaluation of 4 rows in 4 micro-batches, found a "
                                             "step of 4 rows"
                                           : "found an evaluation of 4 rows");
    }
  });
}

TEST(RefusedPipeline, RowsOfAllPipelinesThatAreNotThoseOfTheOnlyOne) {
  on_ranks(pipeline_ranks(), [](Context& context) {
    auto model = five_layers();
    Pipeline pipeline(context.shared_from_this(), model.ptr(), squares, {.stages = context.size()});
    auto batch = AllRows(4).of(pipeline.layout(), context.rank());
    batch.all_rows = 8;
    EXPECT_THAT(error_of<InvalidArgument>([&] { pipeline.compute_gradients(batch); }),
                HasSubstr("expected as many rows of all pipelines as of the only one, 4, found 8"));
  });
}

TEST(RefusedPipeline, RowsThatDifferBetweenReplicasAreAMismatch) {
  on_ranks(pipeline_ranks(2, 2), [](Context& context) {
    auto model = five_layers();
    Pipeline pipeline(context.shared_from_this(), model.ptr(), squares, {.stages = 1});
    const AllRows rows(8);
    auto batch = rows.of(pipeline.layout(), context.rank());
    batch.all_rows = 8 + context.rank();
    const auto [rank, text] = failure_of([&] { pipeline.compute_gradients(batch); });
    const bool is_mismatch = ::testing::Value(text, HasSubstr("gradients of 9 rows"));
    EXPECT_TRUE(is_mismatch || rank == 1 - context.rank()) << text;
  });
}

TEST(RefusedPipeline, AnExceptionInALossNamesItsRankOnAllOthers) {
  on_ranks(pipeline_ranks(2), [](Context& context) {
    auto model = five_layers();
    int calls = 0;
    const Loss loss = [&](const at::Tensor& outputs, const at::Tensor& targets) {
      if (++calls == 3) {
        throw std::runtime_error("the loss is lost");
      }
      return squares(outputs, targets);
    };
    Pipeline pipeline(context.shared_from_this(), model.ptr(), loss,
                      {.stages = context.size(), .micro_batches = 4});
    const AllRows rows(8);
    const auto batch = rows.of(pipeline.layout(), context.rank());
    if (context.rank() == context.size() - 1) {
      EXPECT_THROW(pipeline.compute_gradients(batch), std::runtime_error);
    } else {
      // A stage learns of it from the one behind, which may be another than the culprit.
      const auto [rank, text] = failure_of([&] { pipeline.compute_gradients(batch); });
      EXPECT_GT(rank, context.rank()) << text;
    }
  });
}

TEST(RefusedPipeline, ARankThatLeavesIsNamed) {
  on_ranks(pipeline_ranks(2), [](Context& context) {
    auto model = five_layers();
    auto pipeline = std::make_unique<Pipeline>(context.shared_from_this(), model.ptr(), squares,
                                               PipelineOptions{.stages = context.size()});
    const AllRows rows(8);
    const auto batch = rows.of(pipeline->layout(), context.rank());
    pipeline->compute_gradients(batch);
    if (context.rank() == 1) {
      pipeline.reset();
      return;
    }
    const auto [rank, text] = failure_of([&] { pipeline->compute_gradients(batch); });
    EXPECT_NE(rank, -1) << text;
    if (context.rank() == 0 || context.rank() == 2) {
      EXPECT_EQ(rank, 1) << text;
    }
  });
}

TEST(RefusedPipeline, TrialsOfNoMicroBatches) {
  on_ranks(pipeline_ranks(), [](Context& context) {
    auto model = five_layers();
    Pipeline pipeline(context.shared_from_this(), model.ptr(), squares);
    const auto batch = AllRows(4).of(pipeline.layout(), context.rank());
    EXPECT_THAT(error_of<InvalidArgument>([&] {
                  (void)pipeline.choose_micro_batches(batch, {2, 0});
                }),
                HasSubstr("expected at least 1 micro-batch, found 0"));
  });
}

TEST(RefusedPipeline, ActivationsThatChangeTheirFormAreRefused) {
  on_ranks(pipeline_ranks(2, 2), [](Context& context) {
    // Rows of any length go through layers that look at the last dimension alone.
    torch::nn::Sequential model(torch::nn::Linear(3, 3), torch::nn::Linear(3, 3));
    Pipeline pipeline(context.shared_from_this(), model.ptr(),
                      [](const at::Tensor& outputs, const at::Tensor&) { return outputs.sum(); },
                      {.stages = 2, .micro_batches = 1});
    const auto step = [&](std::int64_t length) {
      pipeline.compute_gradients(
          {.inputs = at::ones({2, length, 3}), .targets = at::ones({2}), .rows = 2});
    };
    step(4);
    step(4);
    if (context.rank() == 0) {
      EXPECT_THAT(error_of<InvalidArgument>([&] { step(5); }),
                  HasSubstr("rank 0, stage 0: expected outputs of rows as those before, Float [4, "
                            "3], found float32[2, 5, 3]"));
    } else {
      EXPECT_EQ(failure_of([&] { step(5); }).first, 0);
    }
  });
}

/// Torch refuses them in one process: here with the layers that they may lie in.
TEST(RefusedPipeline, LayersThatHaveNoBackwardPass) {
  on_ranks(pipeline_ranks(1, 1), [](Context& context) {
    torch::nn::Sequential model(torch::nn::Linear(6, 4), torch::nn::Tanh(),
                                torch::nn::ReLU(torch::nn::ReLUOptions(true)));
    model->to(at::kDouble);
    Pipeline pipeline(context.shared_from_this(), model.ptr(), squares);
    const AllRows rows(4);
    EXPECT_THAT(error_of<InvalidArgument>(
                    [&] { pipeline.compute_gradients(rows.of(pipeline.layout(), 0)); }),
                HasSubstr("the backward pass of layers 0 to 2: one of the variables needed"));
  });
}

TEST(RefusedPipeline, LossesThatAreNoNumberOrHaveNoGradient) {
  on_ranks(pipeline_ranks(1, 1), [](Context& context) {
    const auto error_with = [&](const Loss& loss) {
      auto model = five_layers();
      Pipeline pipeline(context.shared_from_this(), model.ptr(), loss);
      const AllRows rows(4);
      return error_of<InvalidArgument>(
          [&] { pipeline.compute_gradients(rows.of(pipeline.layout(), 0)); });
    };
    EXPECT_THAT(error_with([](const at::Tensor& outputs, const at::Tensor&) { return outputs; }),
                HasSubstr("expected a loss of one floating element, found float64[4, 4]"));
    EXPECT_THAT(error_with([](const at::Tensor&, const at::Tensor&) { return at::Tensor(); }),
                HasSubstr("found undefined"));
    EXPECT_THAT(error_with([](const at::Tensor& outputs, const at::Tensor&) {
                  return outputs.detach().sum();
                }),
                HasSubstr("expected a loss with a gradient"));
  });
}

}  // namespace
}  // namespace bluefog::testing
