#include "optimizers/wrapper/common_counts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "ops/collectives.hpp"

namespace bluefog::optimizers {

CommonCounts agree_on_counts(Context& context, const std::optional<OwnCounts>& own) {
  constexpr OwnCounts kNone{.steps = -1, .rounds = -1, .has_grown = 1};
  OwnCounts sent = own.value_or(kNone);
  std::vector<OwnCounts> all(static_cast<std::size_t>(context.size()));
  const auto bytes = [](void* data, std::size_t count) {
    return BufferView{.data = data,
                      .count = static_cast<std::int64_t>(count * sizeof(OwnCounts)),
                      .dtype = Dtype::UInt8};
  };
  ops::allgather(context, bytes(&sent, 1),
                 [&](const std::vector<std::int64_t>& /*counts*/) -> BufferView {
                   return bytes(all.data(), all.size());
                 });
  const auto place = [](const OwnCounts& counts) { return std::pair(counts.steps, counts.rounds); };
  const auto furthest = std::ranges::max_element(all, {}, place);
  if (furthest->steps < 0) {
    throw StateError(
        fmt::format("rank {}, join: expected a rank that was there before, found that all of them "
                    "are lost, with all that they had",
                    context.rank()));
  }
  const auto [least, most] = std::ranges::minmax(all, {}, &OwnCounts::growths);
  const bool has_grown = least.growths != most.growths ||
                         std::ranges::count(all, 0, &OwnCounts::has_grown) < context.size();
  return {.steps = furthest->steps,
          .rounds = furthest->rounds,
          .behind = own ? furthest->steps - own->steps : 0,
          .furthest = static_cast<int>(furthest - all.begin()),
          .newcomers = static_cast<int>(std::ranges::count(all, -1, &OwnCounts::steps)),
          .has_grown = has_grown,
          .growths = most.growths + (has_grown ? 1 : 0)};
}

}  // namespace bluefog::optimizers
