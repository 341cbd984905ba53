#include "examples/data/labels.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "bluefog_cpp/error.hpp"

namespace bluefog::examples {

void check_labels(const ImageSet& set, const std::filesystem::path& path) {
  const auto bad = std::find_if(set.labels.begin(), set.labels.end(),
                                [&](std::uint8_t label) { return label >= set.num_classes; });
  if (bad != set.labels.end()) {
    throw InvalidArgument(
        fmt::format("data file {}: expected labels 0 to {}, found {} in record {}", path.string(),
                    set.num_classes - 1, *bad, bad - set.labels.begin()));
  }
}

}  // namespace bluefog::examples
