#include "ops/sums/plain_sum.hpp"

#include <algorithm>
#include <array>
#include <cstdint>

#include "bluefog_cpp/error.hpp"

// Highway compiles this file once per instruction set and chooses at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/sums/plain_sum.cpp"
#include <hwy/foreach_target.h>
// foreach_target has to come first.
#include <hwy/highway.h>

#include "ops/sums/half_lanes-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace bluefog::ops::HWY_NAMESPACE {

using Operands = std::span<const std::byte* const>;

/// Elements whose sums are kept beside the operands: `out` may be any of these.
constexpr std::size_t kSumBlock = 512;

template <class Lanes, class D>
hn::Vec<D> element(D d, Operands operands, std::size_t s, std::size_t k) {
  return Lanes::load(d, reinterpret_cast<const typename Lanes::Stored*>(operands[s]) + k);
}

/// Sums elements [k, count) in whole vectors of D. @return where it ended.
template <class Lanes, class D>
std::size_t sum_vectors(D d, typename Lanes::Stored* out, Operands operands, std::size_t k,
                        std::size_t count) {
  const std::size_t lanes = hn::Lanes(d);
  if (operands.size() == 2) {
    for (; k + lanes <= count; k += lanes) {
      const auto sum =
          hn::Add(element<Lanes>(d, operands, 0, k), element<Lanes>(d, operands, 1, k));
      Lanes::store(sum, d, out + k);
    }
    return k;
  }
  alignas(64) std::array<typename Lanes::Sum, kSumBlock> sums;
  while (k + lanes <= count) {
    const std::size_t elements = std::min(kSumBlock, (count - k) / lanes * lanes);
    for (std::size_t s = 0; s < operands.size(); ++s) {
      for (std::size_t i = 0; i < elements; i += lanes) {
        const auto value = element<Lanes>(d, operands, s, k + i);
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

template <class Lanes>
void sum_all(std::byte* out, Operands operands, std::size_t bytes) {
  using Sum = typename Lanes::Sum;
  auto* const to = reinterpret_cast<typename Lanes::Stored*>(out);
  const std::size_t count = bytes / sizeof(typename Lanes::Stored);
  const std::size_t k = sum_vectors<Lanes>(hn::ScalableTag<Sum>(), to, operands, 0, count);
  sum_vectors<Lanes>(hn::CappedTag<Sum, 1>(), to, operands, k, count);
}

void plain_sum_any(Dtype dtype, std::byte* out, Operands operands, std::size_t bytes) {
  switch (dtype) {
    case Dtype::Float16:
    case Dtype::BFloat16:
    case Dtype::Float32:
    case Dtype::Float64:
      return with_floating_lanes(
          dtype, [&](auto lanes) { sum_all<decltype(lanes)>(out, operands, bytes); });
    // Unsigned sums wrap around; two's complement makes them the signed ones too.
    case Dtype::UInt8:
    case Dtype::Int8:
      return sum_all<Plain<std::uint8_t>>(out, operands, bytes);
    case Dtype::Int16:
      return sum_all<Plain<std::uint16_t>>(out, operands, bytes);
    case Dtype::Int32:
      return sum_all<Plain<std::uint32_t>>(out, operands, bytes);
    case Dtype::Int64:
      return sum_all<Plain<std::uint64_t>>(out, operands, bytes);
    case Dtype::Bool:
      return;
  }
}

}  // namespace bluefog::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bluefog::ops {

HWY_EXPORT(plain_sum_any);

void plain_sum(Dtype dtype, std::byte* out, std::span<const std::byte* const> operands,
               std::size_t bytes) {
  if (dtype == Dtype::Bool) {
    throw UnsupportedError("plain_sum: expected a numeric dtype, found bool");
  }
  if (!operands.empty() && bytes > 0) {
    HWY_DYNAMIC_DISPATCH(plain_sum_any)(dtype, out, operands, bytes);
  }
}

}  // namespace bluefog::ops
#endif
