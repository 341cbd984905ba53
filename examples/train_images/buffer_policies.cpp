#include "examples/train_images/buffer_policies.hpp"

#include <array>

#include "examples/common/name_table.hpp"

namespace bluefog::examples {
namespace {

using optimizers::BufferPolicy;

constexpr std::array kBufferPolicies{
    Name<BufferPolicy>{"local", BufferPolicy::Local},
    Name<BufferPolicy>{"average", BufferPolicy::AverageOnFinish},
    Name<BufferPolicy>{"average-every-round", BufferPolicy::AverageEveryRound},
    Name<BufferPolicy>{"broadcast", BufferPolicy::BroadcastFromRankZero},
};

}  // namespace

const std::vector<std::string>& buffer_policy_names() {
  static const std::vector<std::string> kNames = names_in(kBufferPolicies);
  return kNames;
}

BufferPolicy buffer_policy_of(std::string_view name) {
  return find_in(kBufferPolicies, "buffers", name);
}

}  // namespace bluefog::examples
