#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>
#include <type_traits>
#include <vector>

#include "bluefog_cpp/buffer_view.hpp"
#include "bluefog_cpp/context.hpp"
#include "ops/collectives.hpp"

namespace bluefog::ops {

/// Does an `allgather` by which the call named `call` makes something known to all ranks.
void allgather_within(Context& context, std::string_view call, ConstBufferView input,
                      AllocateGathered allocate);

/// Collective. The values of all ranks, by rank: an `allgather` whose result is cut into parts.
/// @tparam Part a string, or a vector of doubles, 32-bit integers or bytes.
/// @param call the user's call that this is a part of, for messages.
/// @param own this rank's value, of any length.
/// Cost and errors are those of `allgather`.
template <typename Part>
[[nodiscard]] std::vector<Part> allgather_parts(Context& context, std::string_view call,
                                                const Part& own) {
  using Value = typename Part::value_type;
  constexpr bool kIsDouble = std::is_same_v<Value, double>;
  constexpr bool kIsInteger = std::is_same_v<Value, std::int32_t>;
  static_assert(kIsDouble || kIsInteger || sizeof(Value) == 1);
  constexpr Dtype kDtype = kIsDouble ? Dtype::Float64 : kIsInteger ? Dtype::Int32 : Dtype::UInt8;
  std::vector<std::int64_t> counts;
  std::vector<Value> all;
  allgather_within(context, call, {own.data(), std::ssize(own), kDtype},
                   [&](const std::vector<std::int64_t>& found) {
                     counts = found;
                     std::int64_t total = 0;
                     for (const std::int64_t count : counts) {
                       total += count;
                     }
                     all.resize(static_cast<std::size_t>(total));
                     return BufferView{.data = all.data(), .count = total, .dtype = kDtype};
                   });
  std::vector<Part> parts;
  auto next = all.begin();
  for (const std::int64_t count : counts) {
    parts.emplace_back(next, next + count);
    next += count;
  }
  return parts;
}

}  // namespace bluefog::ops
