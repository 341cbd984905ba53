#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "bluefog_cpp/error.hpp"
#include "examples/data/tensor_batch.hpp"
#include "examples/models/byte_encoder.hpp"
#include "examples/models/image_model.hpp"
#include "examples/models/vision_transformer.hpp"
#include "tests/support/error_of.hpp"

namespace bluefog::examples {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::int64_t parameter_count(const ImageModel& model) {
  std::int64_t count = 0;
  for (const at::Tensor& parameter : model.parameters()) {
    count += parameter.numel();
  }
  return count;
}

struct Expected {
  const char* name;
  ModelShape shape;
  std::int64_t parameters;
};

TEST(ModelTest, ParameterCountsAreTheKnownOnes) {
  const Expected cases[] = {
      {"cnn", {1, 28, 10}, 421'642},
      {"cnn", {3, 32, 100}, 320 + 576 + 18'496 + (4096 + 1) * 128 + (128 + 1) * 100},
      {"resnet18", {3, 32, 10}, 11'173'962},
      {"resnet18", {1, 28, 10}, 11'172'810},
      {"resnet18", {3, 224, 1000}, 11'689'512},
      {"resnet50", {3, 32, 10}, 23'520'842},
      {"resnet50", {3, 224, 1000}, 25'557'032},
  };
  for (const Expected& expected : cases) {
    EXPECT_EQ(parameter_count(*make_model(expected.name, expected.shape)), expected.parameters)
        << expected.name << " with " << expected.shape.num_classes << " classes";
  }
}

TEST(ModelTest, EveryModelGivesLogitsAndAGradientForEveryParameter) {
  torch::manual_seed(1);
  for (const std::string& name : model_names()) {
    for (const ModelShape& shape : {ModelShape{1, 28, 10}, ModelShape{3, 32, 100}}) {
      const auto model = make_model(name, shape);
      const auto images = torch::randn({2, shape.in_channels, shape.image_size, shape.image_size});
      const at::Tensor logits = model->forward(images);
      EXPECT_THAT(logits.sizes(), ElementsAre(2, shape.num_classes)) << name;
      logits.square().sum().backward();
      for (const auto& item : model->named_parameters()) {
        ASSERT_TRUE(item.value().grad().defined()) << name << ": " << item.key();
        EXPECT_TRUE(item.value().grad().isfinite().all().item<bool>())
            << name << ": " << item.key();
      }
    }
  }
}

TEST(ModelTest, LargeStemQuartersTheImage) {
  const auto model = make_model("resnet18", {3, 96, 10});
  EXPECT_THAT(model->forward(torch::zeros({2, 3, 96, 96})).sizes(), ElementsAre(2, 10));
  EXPECT_THAT(model->named_parameters()["stem.0.weight"].sizes(), ElementsAre(64, 3, 7, 7));
}

TEST(ModelTest, EqualSeedsGiveEqualModels) {
  torch::manual_seed(5);
  const auto one = make_model("resnet18", {1, 28, 10});
  torch::manual_seed(5);
  const auto two = make_model("resnet18", {1, 28, 10});
  const auto parameters = two->parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    EXPECT_TRUE(one->parameters()[i].equal(parameters[i]));
  }
}

TEST(ModelTest, UnknownNameListsTheKnownOnes) {
  EXPECT_THAT(testing::error_of<InvalidArgument>([] { (void)make_model("vgg", {}); }),
              AllOf(HasSubstr("cnn, resnet18, resnet50"), HasSubstr("'vgg'")));
}

TEST(ModelTest, BadShapesAreRefused) {
  EXPECT_THROW((void)make_model("cnn", {0, 28, 10}), InvalidArgument);
  EXPECT_THROW((void)make_model("cnn", {1, 3, 10}), InvalidArgument);
  EXPECT_THROW((void)make_model("resnet18", {1, 0, 10}), InvalidArgument);
  EXPECT_THROW((void)make_model("resnet50", {1, 28, 0}), InvalidArgument);
}

std::int64_t transformer_parameters(std::int64_t inputs, std::int64_t tokens, std::int64_t layers,
                                    std::int64_t width, std::int64_t classes) {
  const std::int64_t layer = 12 * width * width + 13 * width;
  return (inputs + 1 + tokens) * width + layers * layer + (2 + classes) * width + classes;
}

TEST(VisionTransformer, IsASequenceOfTheKnownSize) {
  auto model = vision_transformer({.channels = 3, .side = 32, .patch = 4, .classes = 100},
                                  {.layers = 5, .width = 24, .heads = 3});
  EXPECT_EQ(model->size(), 12U);
  std::int64_t count = 0;
  for (const at::Tensor& parameter : model->parameters()) {
    count += parameter.numel();
  }
  EXPECT_EQ(count, transformer_parameters(3 * 16, 64, 5, 24, 100));
  const at::Tensor logits = model->forward(torch::randn({2, 3, 32, 32}));
  EXPECT_THAT(logits.sizes(), ElementsAre(2, 100));
  logits.square().sum().backward();
  for (const auto& item : model->named_parameters()) {
    ASSERT_TRUE(item.value().grad().defined()) << item.key();
    EXPECT_GT(item.value().grad().abs().sum().item<double>(), 0) << item.key();
  }
}

/// The sum of squared logits' gradient by the places of patches, the first parameter.
at::Tensor first_gradient(std::int64_t pause_us) {
  torch::manual_seed(3);
  auto model = vision_transformer({.side = 8, .patch = 4},
                                  {.layers = 2, .width = 8, .heads = 2, .pause_us = pause_us});
  model->forward(torch::ones({2, 1, 8, 8})).square().sum().backward();
  return model->parameters()[0].grad();
}

TEST(VisionTransformer, PausesChangeNoValue) {
  EXPECT_TRUE(first_gradient(1).equal(first_gradient(0)));
}

TEST(VisionTransformer, SizesThatDoNotFitAreRefused) {
  const auto refusal = [](const PatchShape& images, const EncoderShape& encoder) {
    return testing::error_of<InvalidArgument>(
        [&] { static_cast<void>(vision_transformer(images, encoder)); });
  };
  EXPECT_THAT(refusal({.patch = 5}, {}), HasSubstr("found 1 channels, 10 classes, patches of 5"));
  EXPECT_THAT(refusal({.classes = 0}, {}), HasSubstr("0 classes"));
  EXPECT_THAT(refusal({}, {.width = 10, .heads = 3}), HasSubstr("a width of 10 and 3 heads"));
  EXPECT_THAT(refusal({}, {.layers = 0}), HasSubstr("found 0 layers"));
  EXPECT_THAT(refusal({}, {.pause_us = -1}), HasSubstr("found -1"));
}

TEST(ByteEncoder, ScoresTheBytesOfEachPlace) {
  auto model = byte_encoder(6, {.layers = 2, .width = 8, .heads = 2});
  EXPECT_EQ(model->size(), 6U);
  const at::Tensor scores = model->forward(torch::randint(kMaskToken + 1, {3, 6}, at::kLong));
  EXPECT_THAT(scores.sizes(), ElementsAre(3, 6, 256));
  std::int64_t count = 0;
  for (const at::Tensor& parameter : model->parameters()) {
    count += parameter.numel();
  }
  EXPECT_EQ(count, (257 + 6) * 8 + 2 * (12 * 64 + 13 * 8) + 2 * 8 + 9 * 256);
  EXPECT_THROW(static_cast<void>(byte_encoder(0, {})), InvalidArgument);
  EXPECT_THROW(static_cast<void>(byte_encoder(6, {.heads = 7})), InvalidArgument);
}

TEST(TensorBatchTest, HasTheShapeThatModelsTake) {
  ImageSet set;
  set.name = "small";
  set.channels = 2;
  set.height = 1;
  set.width = 2;
  set.num_classes = 4;
  set.pixels = {0, 255, 51, 51, 255, 0, 51, 51};
  set.labels = {3, 1};
  const ImageDataset dataset(set, {{0.0, 0.0}, {1.0 / 255.0, 1.0 / 255.0}});
  const TensorBatch batch = make_batch(dataset, std::vector<std::int64_t>{1});
  EXPECT_THAT(batch.images.sizes(), ElementsAre(1, 2, 1, 2));
  EXPECT_TRUE(batch.images.allclose(torch::tensor({255.F, 0.F, 51.F, 51.F}).view({1, 2, 1, 2})));
  EXPECT_TRUE(batch.labels.equal(torch::tensor({1}, torch::kLong)));
}

}  // namespace
}  // namespace bluefog::examples
