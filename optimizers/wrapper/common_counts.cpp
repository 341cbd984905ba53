#include "optimizers/wrapper/common_counts.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "ops/collectives.hpp"

namespace bluefog::optimizers {

CommonCounts agree_on_counts(Context& context, std::int64_t steps, std::int64_t rounds) {
  using Counts = std::array<std::int64_t, 2>;
  Counts own{steps, rounds};
  std::vector<Counts> all(static_cast<std::size_t>(context.size()));
  const auto bytes = [](void* data, std::size_t count) {
    return BufferView{.data = data,
                      .count = static_cast<std::int64_t>(count * sizeof(Counts)),
                      .dtype = Dtype::UInt8};
  };
  ops::allgather(context, bytes(own.data(), 1),
                 [&](const std::vector<std::int64_t>& /*counts*/) -> BufferView {
                   return bytes(all.data(), all.size());
                 });
  const auto furthest = std::ranges::max_element(all);
  return {.steps = (*furthest)[0],
          .rounds = (*furthest)[1],
          .behind = (*furthest)[0] - steps,
          .furthest = static_cast<int>(furthest - all.begin())};
}

}  // namespace bluefog::optimizers
