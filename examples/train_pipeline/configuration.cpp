#include "examples/train_pipeline/configuration.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <iterator>
#include <set>
#include <system_error>
#include <vector>

#include "bluefog_cpp/error.hpp"

namespace bluefog::examples {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMany = 1 << 30;
constexpr std::size_t kLongestShown = 60;

/// Reads a value; gives what was expected in its place, or nothing.
using Take = std::function<std::string(const YAML::Node& node)>;

struct Key {
  const char* name;
  Take take;
};

Key truth(const char* name, bool& value) {
  return {name, [&value](const YAML::Node& node) {
            return YAML::convert<bool>::decode(node, value) ? "" : "true or false";
          }};
}

Key whole(const char* name, std::int64_t& value, std::int64_t low, std::int64_t high) {
  return {name, [=, &value](const YAML::Node& node) {
            const bool fits = node.IsScalar() && YAML::convert<std::int64_t>::decode(node, value) &&
                              value >= low && value <= high;
            return fits ? "" : fmt::format("a whole number from {} to {}", low, high);
          }};
}

/// A number between two others, which are no choices themselves.
Key between(const char* name, double& value, double low, double high) {
  return {name, [=, &value](const YAML::Node& node) {
            const bool fits = node.IsScalar() && YAML::convert<double>::decode(node, value) &&
                              value > low && value < high;
            return fits ? "" : fmt::format("a number between {} and {}", low, high);
          }};
}

Key text(const char* name, std::string& value, const std::vector<std::string>& choices = {}) {
  return {name, [=, &value](const YAML::Node& node) -> std::string {
            const bool fits =
                node.IsScalar() && !node.Scalar().empty() &&
                (choices.empty() || std::ranges::find(choices, node.Scalar()) != choices.end());
            if (fits) {
              value = node.Scalar();
              return "";
            }
            return choices.empty() ? "a text" : fmt::format("{}", fmt::join(choices, " or "));
          }};
}

std::vector<Key> keys_of(PipelineConfiguration& chosen) {
  return {
      text("model", chosen.model, {"vit", "bert"}),
      whole("stages", chosen.stages, 0, kMany),
      text("schedule", chosen.schedule, {"1f1b", "gpipe"}),
      text("costs", chosen.costs, {"parameters", "time"}),
      whole("micro_batches", chosen.micro_batches, 0, kMany),
      truth("try_micro_batches", chosen.try_micro_batches),
      text("replicas", chosen.replicas, {"gradients", "parameters"}),
      truth("freeze", chosen.freeze),
      truth("by_gradients", chosen.by_gradients),
      between("alpha", chosen.alpha, 0, 1),
      truth("repartition", chosen.repartition),
      truth("shrink", chosen.shrink),
      truth("cache", chosen.cache),
      whole("cache_memory_mib", chosen.cache_memory_mib, 0, kMany),
      whole("cache_disk_mib", chosen.cache_disk_mib, 0, kMany),
      text("cache_folder", chosen.cache_folder),
      whole("epochs", chosen.epochs, 1, kMany),
      whole("batch_size", chosen.batch_size, 1, kMany),
      between("lr", chosen.lr, 0, 1e6),
      whole("layers", chosen.layers, 1, 1000),
      whole("width", chosen.width, 1, 1 << 20),
      whole("heads", chosen.heads, 1, 1 << 20),
      whole("patch", chosen.patch, 1, 1 << 20),
      whole("tokens", chosen.tokens, 1, 1 << 20),
      whole("pause_us", chosen.pause_us, 0, 1'000'000),
      whole("seed", chosen.seed, 0, kMany),
  };
}

/// A value as a message may have it: in one short line that a terminal can show.
std::string shown(const YAML::Node& node) {
  if (node.IsMap() || node.IsSequence()) {
    return node.IsMap() ? "names with values" : "a list";
  }
  std::string found = node.IsScalar() ? node.Scalar() : "nothing";
  if (found.size() > kLongestShown) {
    found = found.substr(0, kLongestShown) + "...";
  }
  std::ranges::replace_if(
      found, [](char c) { return c < ' ' || c > '~'; }, '?');
  return node.IsScalar() ? fmt::format("'{}'", found) : found;
}

std::string place_of(const fs::path& path, const YAML::Mark& mark) {
  return mark.is_null() ? path.string() : fmt::format("{}, line {}", path.string(), mark.line + 1);
}

std::string contents_of(const fs::path& path) {
  std::error_code error;
  std::ifstream file(path, std::ios::binary);
  if (!file || fs::is_directory(path, error)) {
    throw InvalidArgument(fmt::format("{}: expected a YAML file, found {}", path.string(),
                                      fs::is_directory(path, error) ? "a folder"
                                      : fs::exists(path, error)     ? "one that cannot be read"
                                                                    : "no such file"));
  }
  return {std::istreambuf_iterator<char>(file), {}};
}

YAML::Node parsed(const fs::path& path) {
  try {
    return YAML::Load(contents_of(path));
  } catch (const YAML::Exception& error) {
    throw InvalidArgument(
        fmt::format("{}: expected a YAML file, found: {}", place_of(path, error.mark), error.msg));
  }
}

}  // namespace

PipelineConfiguration read_configuration(const fs::path& path) {
  PipelineConfiguration chosen;
  const std::vector<Key> keys = keys_of(chosen);
  const YAML::Node root = parsed(path);
  if (!root.IsMap() && !root.IsNull()) {
    throw InvalidArgument(
        fmt::format("{}: expected names with values, found {}", path.string(), shown(root)));
  }
  std::set<std::string> seen;
  for (const auto& item : root) {
    const std::string name = item.first.IsScalar() ? item.first.Scalar() : "";
    const std::string place = place_of(path, item.first.Mark());
    const auto key = std::ranges::find_if(keys, [&](const Key& one) { return name == one.name; });
    if (key == keys.end()) {
      std::vector<std::string> names;
      for (const Key& one : keys) {
        names.emplace_back(one.name);
      }
      throw InvalidArgument(fmt::format("{}: expected keys of {}, found {}", place,
                                        fmt::join(names, ", "), shown(item.first)));
    }
    if (!seen.insert(name).second) {
      throw InvalidArgument(fmt::format("{}: expected '{}' once, found it twice", place, name));
    }
    const std::string expected = key->take(item.second);
    if (!expected.empty()) {
      throw InvalidArgument(fmt::format("{}: expected {} for '{}', found {}", place, expected, name,
                                        shown(item.second)));
    }
  }
  if (chosen.try_micro_batches && chosen.micro_batches > 0) {
    throw InvalidArgument(
        fmt::format("{}: expected micro_batches of 0 with try_micro_batches, found {}",
                    path.string(), chosen.micro_batches));
  }
  return chosen;
}

}  // namespace bluefog::examples
