#include "examples/models/image_model.hpp"

#include <functional>
#include <map>

#include "bluefog_cpp/error.hpp"
#include "examples/models/cnn.hpp"
#include "examples/models/resnet.hpp"

namespace bluefog::examples {
namespace {

using Builder = std::function<std::shared_ptr<ImageModel>(const ModelShape&)>;

const std::map<std::string, Builder, std::less<>>& builders() {
  static const std::map<std::string, Builder, std::less<>> kBuilders{
      {"cnn", make_cnn},
      {"resnet18",
       [](const ModelShape& shape) {
         return make_resnet(shape, ResidualBlock::Basic, {2, 2, 2, 2});
       }},
      {"resnet50",
       [](const ModelShape& shape) {
         return make_resnet(shape, ResidualBlock::Bottleneck, {3, 4, 6, 3});
       }},
  };
  return kBuilders;
}

std::string known_names() {
  std::string list;
  for (const std::string& name : model_names()) {
    list += (list.empty() ? "" : ", ") + name;
  }
  return list;
}

}  // namespace

const std::vector<std::string>& model_names() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names;
    for (const auto& [name, builder] : builders()) {
      names.push_back(name);
    }
    return names;
  }();
  return kNames;
}

std::shared_ptr<ImageModel> make_model(std::string_view name, const ModelShape& shape) {
  const auto found = builders().find(name);
  if (found == builders().end()) {
    throw InvalidArgument("make_model: expected one of " + known_names() + ", found '" +
                          std::string(name) + "'");
  }
  const std::int64_t smallest_image = name == "cnn" ? 4 : 1;
  if (shape.in_channels < 1 || shape.num_classes < 1 || shape.image_size < smallest_image) {
    throw InvalidArgument("make_model " + std::string(name) + ": expected at least 1 channel, " +
                          std::to_string(smallest_image) + " pixels and 1 class, found " +
                          std::to_string(shape.in_channels) + " channels, " +
                          std::to_string(shape.image_size) + " pixels, " +
                          std::to_string(shape.num_classes) + " classes");
  }
  return found->second(shape);
}

}  // namespace bluefog::examples
