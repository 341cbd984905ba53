#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "bluefog_cpp/error.hpp"
#include "examples/train_images/evaluation.hpp"
#include "examples/train_images/local_optimizer.hpp"
#include "tests/support/error_of.hpp"

namespace bluefog::examples {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// Answers with the class whose number is the image's only pixel.
class PixelIsClass final : public ImageModel {
 public:
  at::Tensor forward(const at::Tensor& images) override {
    EXPECT_FALSE(is_training());
    EXPECT_FALSE(torch::GradMode::is_enabled());
    return torch::one_hot(images.flatten().round().to(torch::kLong), 10).to(torch::kFloat) * 100;
  }
};

/// `count` images of one pixel; the label is the pixel, but for every fourth image.
ImageDataset numbered(int count) {
  ImageSet set;
  set.name = "numbered";
  set.channels = set.height = set.width = 1;
  set.num_classes = 10;
  for (int i = 0; i < count; ++i) {
    const auto digit = static_cast<std::uint8_t>(i % 10);
    set.pixels.push_back(digit);
    set.labels.push_back(i % 4 == 3 ? static_cast<std::uint8_t>((digit + 1) % 10) : digit);
  }
  return ImageDataset(std::move(set), {{0.0}, {1.0 / 255.0}});
}

TEST(EvaluationTest, CountsRightAnswersOverSeveralBatches) {
  PixelIsClass model;
  const ImageDataset images = numbered(1000);
  EXPECT_DOUBLE_EQ(evaluate(model, images).accuracy, 0.75);
  EXPECT_NEAR(evaluate(model, images).loss, 25.0, 1e-3);
  EXPECT_DOUBLE_EQ(evaluate(model, images, 3).accuracy, 1.0);
  EXPECT_DOUBLE_EQ(evaluate(model, images, 10'000).accuracy, 0.75);
}

TEST(EvaluationTest, LeavesTheModelInItsMode) {
  PixelIsClass model;
  const ImageDataset images = numbered(4);
  model.train();
  (void)evaluate(model, images);
  EXPECT_TRUE(model.is_training());
  model.eval();
  (void)evaluate(model, images);
  EXPECT_FALSE(model.is_training());
}

TEST(LocalOptimizerTest, EveryNameDescends) {
  for (const std::string& name : local_optimizer_names()) {
    const auto x = torch::full({3}, 1.0).requires_grad_();
    const auto optimizer = make_local_optimizer(name, {x}, {0.01, 0.0, 0.0});
    for (int step = 0; step < 20; ++step) {
      optimizer->zero_grad();
      x.square().sum().backward();
      optimizer->step();
    }
    EXPECT_LT(x.detach().square().sum().item<double>(), 2.8) << name;
  }
}

TEST(LocalOptimizerTest, OptionsReachTheOptimizer) {
  const auto x = torch::ones({1}).requires_grad_();
  const auto optimizer = make_local_optimizer("sgd", {x}, {0.25, 0.5, 0.125});
  const auto& options =
      static_cast<torch::optim::SGDOptions&>(optimizer->param_groups()[0].options());
  EXPECT_EQ(options.lr(), 0.25);
  EXPECT_EQ(options.momentum(), 0.5);
  EXPECT_EQ(options.weight_decay(), 0.125);
}

TEST(LocalOptimizerTest, UnknownNameListsTheKnownOnes) {
  EXPECT_THAT(
      testing::error_of<InvalidArgument>([] { (void)make_local_optimizer("lion", {}, {}); }),
      AllOf(HasSubstr("sgd, adam, adamw"), HasSubstr("'lion'")));
}

}  // namespace
}  // namespace bluefog::examples
