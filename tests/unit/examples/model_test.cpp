#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "bluefog_cpp/error.hpp"
#include "examples/data/tensor_batch.hpp"
#include "examples/models/image_model.hpp"
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
