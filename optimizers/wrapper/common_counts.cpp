#include "optimizers/wrapper/common_counts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "ops/collectives.hpp"

namespace bluefog::optimizers {

CommonCounts agree_on_counts(Context& context, const std::optional<OwnCounts>& own) {
  using Counts = std::array<std::int64_t, 2>;
  constexpr Counts kNone{-1, -1};
  Counts counts = own ? Counts{own->steps, own->rounds} : kNone;
  std::vector<Counts> all(static_cast<std::size_t>(context.size()));
  const auto bytes = [](void* data, std::size_t count) {
    return BufferView{.data = data,
                      .count = static_cast<std::int64_t>(count * sizeof(Counts)),
                      .dtype = Dtype::UInt8};
  };
  ops::allgather(context, bytes(counts.data(), 1),
                 [&](const std::vector<std::int64_t>& /*counts*/) -> BufferView {
                   return bytes(all.data(), all.size());
                 });
  const auto furthest = std::ranges::max_element(all);
  if (*furthest == kNone) {
    throw StateError(
        fmt::format("rank {}, join: expected a rank that was there before, found that all of them "
                    "are lost, with all that they had",
                    context.rank()));
  }
  return {.steps = (*furthest)[0],
          .rounds = (*furthest)[1],
          .behind = own ? (*furthest)[0] - own->steps : 0,
          .furthest = static_cast<int>(furthest - all.begin()),
          .newcomers = static_cast<int>(std::ranges::count(all, kNone))};
}

}  // namespace bluefog::optimizers
