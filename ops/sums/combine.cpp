#include "ops/sums/combine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "bluefog_cpp/error.hpp"
#include "ops/sums/average.hpp"

// Highway compiles this file once per instruction set and chooses at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/sums/combine.cpp"
#include <hwy/foreach_target.h>
// foreach_target has to come first.
#include <hwy/highway.h>

#include "ops/sums/half_lanes-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace bluefog::ops::HWY_NAMESPACE {

/// Elements whose sums are kept beside the operands when these are many.
constexpr std::size_t kBlock = 512;

template <class Lanes>
const typename Lanes::Stored* data_of(const Operand& operand) {
  return reinterpret_cast<const typename Lanes::Stored*>(operand.data);
}

template <class Lanes, class D>
hn::Vec<D> term(D d, const Operand& operand, std::size_t k, hn::Vec<D> weight) {
  return hn::Mul(Lanes::load(d, data_of<Lanes>(operand) + k), weight);
}

/// Sums elements [k, count) of a few operands, in whole vectors of D. @return where it ended.
template <class Lanes, std::size_t N, class D>
std::size_t sum_few(D d, typename Lanes::Stored* out, const Operand* operands, std::size_t k,
                    std::size_t count) {
  using Sum = typename Lanes::Sum;
  const std::size_t lanes = hn::Lanes(d);
  const auto weight = [&](std::size_t s) {
    return hn::Set(d, static_cast<Sum>(operands[s < N ? s : 0].weight));
  };
  const auto w0 = weight(0);
  const auto w1 = weight(1);
  const auto w2 = weight(2);
  const auto w3 = weight(3);
  for (; k + lanes <= count; k += lanes) {
    auto sum = term<Lanes>(d, operands[0], k, w0);
    if constexpr (N > 1) {
      sum = hn::Add(sum, term<Lanes>(d, operands[1], k, w1));
    }
    if constexpr (N > 2) {
      sum = hn::Add(sum, term<Lanes>(d, operands[2], k, w2));
    }
    if constexpr (N > 3) {
      sum = hn::Add(sum, term<Lanes>(d, operands[3], k, w3));
    }
    Lanes::store(sum, d, out + k);
  }
  return k;
}

/// Sums like `sum_few`, any number of operands: block by block, so that `out` may be any of them.
template <class Lanes, class D>
std::size_t sum_many(D d, typename Lanes::Stored* out, std::span<const Operand> operands,
                     std::size_t k, std::size_t count) {
  using Sum = typename Lanes::Sum;
  const std::size_t lanes = hn::Lanes(d);
  alignas(64) std::array<Sum, kBlock> sums;
  while (k + lanes <= count) {
    const std::size_t elements = std::min(kBlock, (count - k) / lanes * lanes);
    for (std::size_t s = 0; s < operands.size(); ++s) {
      const auto weight = hn::Set(d, static_cast<Sum>(operands[s].weight));
      for (std::size_t i = 0; i < elements; i += lanes) {
        const auto value = term<Lanes>(d, operands[s], k + i, weight);
        hn::StoreU(s == 0 ? value : hn::Add(hn::LoadU(d, &sums[i]), value), d, &sums[i]);
      }
    }
    for (std::size_t i = 0; i < elements; i += lanes) {
      Lanes::store(hn::LoadU(d, &sums[i]), d, out + k + i);
    }
    k += elements;
  }
  return k;
}

template <class Lanes, class D>
std::size_t sum_range(D d, typename Lanes::Stored* out, std::span<const Operand> operands,
                      std::size_t k, std::size_t count) {
  switch (operands.size()) {
    case 1:
      return sum_few<Lanes, 1>(d, out, operands.data(), k, count);
    case 2:
      return sum_few<Lanes, 2>(d, out, operands.data(), k, count);
    case 3:
      return sum_few<Lanes, 3>(d, out, operands.data(), k, count);
    case 4:
      return sum_few<Lanes, 4>(d, out, operands.data(), k, count);
    default:
      return sum_many<Lanes>(d, out, operands, k, count);
  }
}

template <class Lanes>
void sum_all(std::byte* out, std::span<const Operand> operands, std::size_t bytes) {
  using Sum = typename Lanes::Sum;
  auto* const to = reinterpret_cast<typename Lanes::Stored*>(out);
  const std::size_t count = bytes / sizeof(typename Lanes::Stored);
  const std::size_t k = sum_range<Lanes>(hn::ScalableTag<Sum>(), to, operands, 0, count);
  sum_range<Lanes>(hn::CappedTag<Sum, 1>(), to, operands, k, count);
}

void weighted_sum_floating(Dtype dtype, std::byte* out, std::span<const Operand> operands,
                           std::size_t bytes) {
  with_floating_lanes(dtype, [&](auto lanes) { sum_all<decltype(lanes)>(out, operands, bytes); });
}

}  // namespace bluefog::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bluefog::ops {

HWY_EXPORT(weighted_sum_floating);

void weighted_sum(Dtype dtype, std::byte* out, std::span<const Operand> operands,
                  std::size_t bytes) {
  if (!is_floating(dtype)) {
    throw UnsupportedError(
        fmt::format("weighted_sum: expected a floating dtype, found {}", name_of(dtype)));
  }
  if (operands.empty() || bytes == 0) {
    return;
  }
  if (const auto base = base_of(operands)) {
    weighted_average(dtype, out, operands, *base, bytes);
  } else {
    HWY_DYNAMIC_DISPATCH(weighted_sum_floating)(dtype, out, operands, bytes);
  }
}

}  // namespace bluefog::ops
#endif
