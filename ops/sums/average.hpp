#pragma once

#include <algorithm>
#include <boost/container/small_vector.hpp>
#include <cstddef>
#include <optional>
#include <span>

#include "bluefog_cpp/dtype.hpp"
#include "ops/sums/operand.hpp"
#include "ops/sums/result_log.hpp"

namespace bluefog::ops {

/// The operand from which a weighted average counts: the one of the largest weight, of several the
/// first. None where the weights do not sum to 1 within 1e-9: such a sum is no average.
[[nodiscard]] std::optional<std::size_t> base_of(std::span<const Operand> operands) noexcept;

/// The operand that is number `s` in an average's order: the base, then the others as they come.
[[nodiscard]] constexpr std::size_t from_base(std::size_t base, std::size_t s) noexcept {
  return s == 0 ? base : s - (s <= base ? 1U : 0U);
}

/// out[k] ← x_b[k] − Σ_{s≠b} weight_s (x_b[k] − x_s[k]), with b the base: what
/// Σ_s weight_s x_s[k] is where the weights sum to 1. Equal values give exactly that value.
///
/// An element whose result is not finite (a difference overflowed, or an operand is not finite) is
/// formed as Σ_s weight_s x_s instead, the base first. Types, order and places as `weighted_sum`.
void weighted_average(Dtype dtype, std::byte* out, std::span<const Operand> operands,
                      std::size_t base, std::size_t bytes);

/// One of several weighted averages that are formed side by side.
struct AverageRow {
  boost::container::small_vector<Operand, 4> operands{};
  /// The operand from which it counts (`base_of`).
  std::size_t base = 0;
  /// The buffers that get it.
  boost::container::small_vector<std::byte*, 4> results{};

  [[nodiscard]] std::span<const Operand> all_operands() const noexcept {
    return {operands.data(), operands.size()};
  }
};

/// The bytes of each result that `average_rows` forms at once. A log holds so many of each row.
///
/// The operands of all rows so stream through the cache side by side, and memory brings what comes
/// next while results are formed. Of a few KiB of several rows at once it would wait for each: among 4
/// ranks of two sources 4 KiB took a fifth longer than 256 bytes to 2 KiB, which took the same. A
/// single row streams anyway, and short tiles of it are over before they are set up.
[[nodiscard]] constexpr std::size_t tile_bytes(std::size_t rows) noexcept {
  constexpr std::size_t kResults = 4096;
  constexpr std::size_t kLeast = 512;
  return std::max(kResults / std::max<std::size_t>(rows, 1) / 64 * 64, kLeast);
}

/// Each row's `weighted_average`, into all of its results, which may be operands of any row at the
/// same address: all results of a tile are in the log before one of them is in a buffer.
/// @param dtype as of `weighted_average`. @param rows are left at the end of the range.
/// @param bytes of each operand, a multiple of the element's size.
/// @param log has room for `tile_bytes(rows.size())` of each row.
void average_rows(Dtype dtype, std::span<AverageRow> rows, std::size_t bytes, ResultLog& log);

/// out[k] ← x_0[k] − (Σ_{s≥1} (x_0[k] − x_s[k])) / n, the mean of n operands. Equal values give
/// exactly that value. An element whose result is not finite is formed as Σ_s (x_s[k] / n).
/// @param dtype floating; sums and quotients are formed in float32, of float64 in float64.
/// @param operands one or more; `out` may be one of them, at the same address.
/// @param bytes a multiple of the element's size.
/// @throws UnsupportedError for other dtypes.
void mean(Dtype dtype, std::byte* out, std::span<const std::byte* const> operands,
          std::size_t bytes);

}  // namespace bluefog::ops
