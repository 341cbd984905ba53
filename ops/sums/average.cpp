#include "ops/sums/average.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "bluefog_cpp/error.hpp"

// Highway compiles this file once per instruction set and chooses at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/sums/average.cpp"
#include <hwy/foreach_target.h>
// foreach_target has to come first.
#include <hwy/highway.h>

#include "ops/sums/average-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace bluefog::ops::HWY_NAMESPACE {

template <class Lanes, class Form>
void average_all(std::byte* out, const Form& form, std::size_t bytes) {
  using Sum = typename Lanes::Sum;
  auto* const to = reinterpret_cast<typename Lanes::Stored*>(out);
  const std::size_t count = bytes / sizeof(typename Lanes::Stored);
  const hn::ScalableTag<Sum> d;
  std::size_t k = 0;
  // Short calls are over sooner where they set up one loop alone.
  if (count >= hn::Lanes(d)) {
    k = average_range<Lanes>(d, to, form, 0, count);
  }
  if (k < count) {
    average_range<Lanes>(hn::CappedTag<Sum, 1>(), to, form, k, count);
  }
}

template <class Form>
void average_floating(Dtype dtype, std::byte* out, const Form& form, std::size_t bytes) {
  with_floating_lanes(dtype, [&](auto lanes) { average_all<decltype(lanes)>(out, form, bytes); });
}

void weighted_average_any(Dtype dtype, std::byte* out, std::span<const Operand> operands,
                          std::size_t base, std::size_t bytes) {
  average_floating(dtype, out, Weighted(operands, base), bytes);
}

void mean_any(Dtype dtype, std::byte* out, std::span<const std::byte* const> operands,
              std::size_t bytes) {
  average_floating(dtype, out, Unweighted(operands), bytes);
}

void copy_tile(std::byte* to, const std::byte* from, std::size_t bytes) {
  const hn::ScalableTag<std::uint8_t> d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t k = 0;
  for (; k + lanes <= bytes; k += lanes) {
    hn::StoreU(hn::LoadU(d, reinterpret_cast<const std::uint8_t*>(from) + k), d,
               reinterpret_cast<std::uint8_t*>(to) + k);
  }
  std::copy_n(from + k, bytes - k, to + k);
}

template <class Lanes>
void average_rows_all(std::span<AverageRow> rows, std::size_t bytes, ResultLog& log) {
  const std::size_t most = tile_bytes(rows.size());
  while (bytes > 0) {
    const std::size_t tile = std::min(most, bytes);
    std::byte* formed = log.results();
    for (AverageRow& row : rows) {
      average_all<Lanes>(formed, Weighted(row.all_operands(), row.base), tile);
      formed += tile;
      for (Operand& operand : row.operands) {
        operand.data += tile;
      }
    }
    log.note_formed();
    formed = log.results();
    for (AverageRow& row : rows) {
      for (std::byte*& result : row.results) {
        copy_tile(result, formed, tile);
        result += tile;
      }
      formed += tile;
    }
    log.note_written();
    bytes -= tile;
  }
}

void average_rows_any(Dtype dtype, std::span<AverageRow> rows, std::size_t bytes, ResultLog& log) {
  with_floating_lanes(dtype,
                      [&](auto lanes) { average_rows_all<decltype(lanes)>(rows, bytes, log); });
}

}  // namespace bluefog::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bluefog::ops {

HWY_EXPORT(weighted_average_any);
HWY_EXPORT(mean_any);
HWY_EXPORT(average_rows_any);

std::optional<std::size_t> base_of(std::span<const Operand> operands) noexcept {
  constexpr double kTolerance = 1e-9;
  double sum = 0.0;
  std::size_t base = 0;
  for (std::size_t s = 0; s < operands.size(); ++s) {
    sum += operands[s].weight;
    base = operands[s].weight > operands[base].weight ? s : base;
  }
  return std::abs(sum - 1.0) <= kTolerance ? std::optional(base) : std::nullopt;
}

void weighted_average(Dtype dtype, std::byte* out, std::span<const Operand> operands,
                      std::size_t base, std::size_t bytes) {
  HWY_DYNAMIC_DISPATCH(weighted_average_any)(dtype, out, operands, base, bytes);
}

void average_rows(Dtype dtype, std::span<AverageRow> rows, std::size_t bytes, ResultLog& log) {
  HWY_DYNAMIC_DISPATCH(average_rows_any)(dtype, rows, bytes, log);
}

void mean(Dtype dtype, std::byte* out, std::span<const std::byte* const> operands,
          std::size_t bytes) {
  if (!is_floating(dtype)) {
    throw UnsupportedError(
        fmt::format("mean: expected a floating dtype, found {}", name_of(dtype)));
  }
  if (!operands.empty() && bytes > 0) {
    HWY_DYNAMIC_DISPATCH(mean_any)(dtype, out, operands, bytes);
  }
}

}  // namespace bluefog::ops
#endif
