#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "ops/cuda/element.hpp"

namespace bluefog::ops::cuda {

/// One operand of a sum in a device's memory.
struct SumOperand {
  const void* data;
  double weight;
};

/// Most operands of one launch: what fits into a kernel's 4 KiB of arguments.
inline constexpr int kMostSumOperands = 240;

/// The argument of every sum kernel, passed by value.
struct SumArguments {
  void* out;
  std::int64_t count;
  /// Divides plain sums.
  std::int32_t divisor;
  std::int32_t operand_count;
  SumOperand operands[kMostSumOperands];
};
static_assert(sizeof(SumArguments) <= 4096);

/// Bytes that a thread reads and writes at once.
inline constexpr std::uintptr_t kPackBytes = 16;

template <typename Stored>
struct alignas(kPackBytes) Pack {
  Stored elements[kPackBytes / sizeof(Stored)];
};

/// Elements before the first multiple of `kPackBytes` in `out`, or all of them where the operands
/// do not lie alike.
template <typename Stored>
BF_HOST_DEVICE std::int64_t unaligned_head(const SumArguments& a) {
  const auto offset = [](const void* p) {
    return reinterpret_cast<std::uintptr_t>(p) % kPackBytes;
  };
  const std::uintptr_t own = offset(a.out);
  for (int s = 0; s < a.operand_count; ++s) {
    if (offset(a.operands[s].data) != own) {
      return a.count;
    }
  }
  const auto head = static_cast<std::int64_t>((kPackBytes - own) % kPackBytes / sizeof(Stored));
  return head < a.count ? head : a.count;
}

/// Σ_s weight_s · x_s in the order of the operands.
template <typename Element>
struct Weighted {
  using Sum = typename Element::Sum;
  static BF_HOST_DEVICE Sum first(Sum value, const SumOperand& operand) {
    return product(value, static_cast<Sum>(operand.weight));
  }
  static BF_HOST_DEVICE Sum next(Sum total, Sum value, const SumOperand& operand) {
    return sum(total, product(value, static_cast<Sum>(operand.weight)));
  }
  static BF_HOST_DEVICE Sum last(Sum total, const SumArguments& /*a*/) { return total; }
};

/// (Σ_s x_s) / divisor in the order of the operands; integers have divisor 1 and wrap around.
template <typename Element>
struct Unweighted {
  using Sum = typename Element::Sum;
  static BF_HOST_DEVICE Sum first(Sum value, const SumOperand& /*operand*/) { return value; }
  static BF_HOST_DEVICE Sum next(Sum total, Sum value, const SumOperand& /*operand*/) {
    return sum(total, value);
  }
  static BF_HOST_DEVICE Sum last(Sum total, const SumArguments& a) {
    if constexpr (std::is_floating_point_v<Sum>) {
      return a.divisor == 1 ? total : quotient(total, static_cast<Sum>(a.divisor));
    } else {
      return total;
    }
  }
};

/// On the host, which reads from anywhere, an address that a device would refuse ends the process.
template <typename Unit, typename Byte>
inline Byte* unit_at(Byte* base, std::int64_t index) {
  Byte* const place = base + index * std::int64_t{sizeof(Unit)};
  if (reinterpret_cast<std::uintptr_t>(place) % alignof(Unit) != 0) {
    __builtin_trap();
  }
  return place;
}

template <typename Unit>
BF_HOST_DEVICE inline Unit load_unit(const void* base, std::int64_t index) {
#if defined(__CUDA_ARCH__)
  return static_cast<const Unit*>(base)[index];
#else
  Unit unit;
  memcpy(&unit, unit_at<Unit>(static_cast<const unsigned char*>(base), index), sizeof unit);
  return unit;
#endif
}
template <typename Unit>
BF_HOST_DEVICE inline void store_unit(void* base, std::int64_t index, const Unit& unit) {
#if defined(__CUDA_ARCH__)
  static_cast<Unit*>(base)[index] = unit;
#else
  memcpy(unit_at<Unit>(static_cast<unsigned char*>(base), index), &unit, sizeof unit);
#endif
}

/// `index` counts in units of `Lanes` elements that begin `head` elements behind the beginning.
/// Everything is read before `out` is written: it may be any operand, at the same address.
template <typename Element, template <typename> typename Rule, int Lanes>
BF_HOST_DEVICE inline void sum_unit(const SumArguments& a, std::int64_t head, std::int64_t index) {
  using Stored = typename Element::Stored;
  using Unit = std::conditional_t<Lanes == 1, Stored, Pack<Stored>>;
  const auto at = [&](const void* base) {
    return static_cast<const void*>(static_cast<const Stored*>(base) + head);
  };
  typename Element::Sum totals[Lanes];
  const auto take = [&](int s, auto&& combine) {
    const Unit unit = load_unit<Unit>(at(a.operands[s].data), index);
    for (int lane = 0; lane < Lanes; ++lane) {
      if constexpr (Lanes == 1) {
        combine(totals[lane], Element::load(unit));
      } else {
        combine(totals[lane], Element::load(unit.elements[lane]));
      }
    }
  };
  take(0, [&](auto& total, auto value) { total = Rule<Element>::first(value, a.operands[0]); });
  for (int s = 1; s < a.operand_count; ++s) {
    take(s, [&](auto& total, auto value) {
      total = Rule<Element>::next(total, value, a.operands[s]);
    });
  }
  Unit result;
  for (int lane = 0; lane < Lanes; ++lane) {
    const auto value = Element::store(Rule<Element>::last(totals[lane], a));
    if constexpr (Lanes == 1) {
      result = value;
    } else {
      result.elements[lane] = value;
    }
  }
  store_unit<Unit>(static_cast<Stored*>(a.out) + head, index, result);
}

/// Thread `thread` of `threads`: its share of the whole sum. Elements before and behind the packs
/// go one by one.
template <typename Element, template <typename> typename Rule>
BF_HOST_DEVICE inline void sum_share(const SumArguments& a, std::int64_t thread,
                                     std::int64_t threads) {
  constexpr std::int64_t kLanes = kPackBytes / sizeof(typename Element::Stored);
  const std::int64_t head = unaligned_head<typename Element::Stored>(a);
  const std::int64_t packs = (a.count - head) / kLanes;
  for (std::int64_t k = thread; k < packs; k += threads) {
    sum_unit<Element, Rule, static_cast<int>(kLanes)>(a, head, k);
  }
  const std::int64_t behind = head + packs * kLanes;
  for (std::int64_t k = thread; k < head + (a.count - behind); k += threads) {
    sum_unit<Element, Rule, 1>(a, 0, k < head ? k : behind + (k - head));
  }
}

}  // namespace bluefog::ops::cuda
