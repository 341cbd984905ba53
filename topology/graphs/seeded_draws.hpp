#pragma once

#include <cstdint>
#include <random>

namespace bluefog::topology::detail {

/// Numbers that follow from `seed` and `phase` alone, the same from every standard library.
inline std::mt19937_64 generator_of(std::uint64_t seed, std::int64_t phase) {
  std::seed_seq sequence{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32U),
                         static_cast<std::uint32_t>(phase),
                         static_cast<std::uint32_t>(phase >> 32U)};
  return std::mt19937_64(sequence);
}

/// 0 … count − 1; not by std::uniform_int_distribution, which differs between libraries.
inline int draw_below(std::mt19937_64& generator, int count) {
  return static_cast<int>(generator() % static_cast<std::uint64_t>(count));
}

}  // namespace bluefog::topology::detail
