#include "examples/train_images/algorithms.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "bluefog_cpp/base/error.hpp"

namespace bluefog::examples {
namespace {

using optimizers::AlgorithmKind;
using optimizers::BufferPolicy;

template <typename Kind>
using Name = std::pair<const char*, Kind>;

constexpr std::array kAlgorithms{
    Name<AlgorithmKind>{"atc", AlgorithmKind::AdaptThenCombine},
    Name<AlgorithmKind>{"awc", AlgorithmKind::AdaptWithCombine},
    Name<AlgorithmKind>{"gradient_allreduce", AlgorithmKind::GradientAllreduce},
    Name<AlgorithmKind>{"none", AlgorithmKind::None},
};

constexpr std::array kBufferPolicies{
    Name<BufferPolicy>{"local", BufferPolicy::Local},
    Name<BufferPolicy>{"average", BufferPolicy::AverageOnFinish},
    Name<BufferPolicy>{"average-every-round", BufferPolicy::AverageEveryRound},
    Name<BufferPolicy>{"broadcast", BufferPolicy::BroadcastFromRankZero},
};

template <typename Table>
std::vector<std::string> names_in(const Table& table) {
  std::vector<std::string> names;
  for (const auto& [name, kind] : table) {
    names.emplace_back(name);
  }
  return names;
}

template <typename Table>
auto find_in(const Table& table, std::string_view what, std::string_view name) {
  const auto found = std::find_if(table.begin(), table.end(),
                                  [&](const auto& entry) { return name == entry.first; });
  if (found == table.end()) {
    std::string message = std::string(what) + ": expected one of ";
    for (const auto& entry : table) {
      message += std::string(entry.first) + ", ";
    }
    throw InvalidArgument(message + "found '" + std::string(name) + "'");
  }
  return found->second;
}

}  // namespace

const std::vector<std::string>& algorithm_names() {
  static const std::vector<std::string> kNames = names_in(kAlgorithms);
  return kNames;
}

AlgorithmKind algorithm_of(std::string_view name) {
  return find_in(kAlgorithms, "algorithm", name);
}

const std::vector<std::string>& buffer_policy_names() {
  static const std::vector<std::string> kNames = names_in(kBufferPolicies);
  return kNames;
}

BufferPolicy buffer_policy_of(std::string_view name) {
  return find_in(kBufferPolicies, "buffers", name);
}

}  // namespace bluefog::examples
