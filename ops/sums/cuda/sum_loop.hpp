#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "ops/sums/cuda/element.hpp"

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

/// An address that a device would refuse ends the process on the host too, which reads anywhere.
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

/// Operands whose units are all read before the first of them is used: as many reads of memory are
/// under way at once.
inline constexpr int kReadsAtOnce = 4;

/// The sums of one unit: `Lanes` elements, which lie `index` units behind element `head`.
template <typename Element, template <typename> typename Rule, int Lanes>
class UnitSum {
 public:
  BF_HOST_DEVICE UnitSum(const SumArguments& a, std::int64_t head, std::int64_t index)
      : a_(a), head_(head), index_(index) {}

  /// Operands `s` to `s + Count - 1`.
  template <int Count, bool IsBeginning>
  BF_HOST_DEVICE void add(int s) {
    Unit units[Count];
    for (int k = 0; k < Count; ++k) {
      units[k] = load_unit<Unit>(begin_of(a_.operands[s + k].data), index_);
    }
    for (int k = 0; k < Count; ++k) {
      for (int lane = 0; lane < Lanes; ++lane) {
        const auto value = Element::load(element(units[k], lane));
        totals_[lane] = IsBeginning && k == 0
                            ? Rule<Element>::first(value, a_.operands[s])
                            : Rule<Element>::next(totals_[lane], value, a_.operands[s + k]);
      }
    }
  }

  /// Operands `s` to the last, fewer than `kReadsAtOnce`.
  template <bool IsBeginning>
  BF_HOST_DEVICE void add_last(int s) {
    switch (a_.operand_count - s) {
      case 3:
        return add<3, IsBeginning>(s);
      case 2:
        return add<2, IsBeginning>(s);
      case 1:
        return add<1, IsBeginning>(s);
      default:
        return;
    }
  }

  BF_HOST_DEVICE void store() const {
    Unit result;
    for (int lane = 0; lane < Lanes; ++lane) {
      element(result, lane) = Element::store(Rule<Element>::last(totals_[lane], a_));
    }
    store_unit<Unit>(static_cast<Stored*>(a_.out) + head_, index_, result);
  }

 private:
  using Stored = typename Element::Stored;
  using Unit = std::conditional_t<Lanes == 1, Stored, Pack<Stored>>;

  BF_HOST_DEVICE const void* begin_of(const void* base) const {
    return static_cast<const Stored*>(base) + head_;
  }
  template <typename AnyUnit>
  static BF_HOST_DEVICE auto& element(AnyUnit& unit, int lane) {
    if constexpr (Lanes == 1) {
      return unit;
    } else {
      return unit.elements[lane];
    }
  }

  const SumArguments& a_;
  std::int64_t head_;
  std::int64_t index_;
  typename Element::Sum totals_[Lanes] = {};
};

/// Everything is read before `out` is written: it may be any operand, at the same address.
template <typename Element, template <typename> typename Rule, int Lanes>
BF_HOST_DEVICE inline void sum_unit(const SumArguments& a, std::int64_t head, std::int64_t index) {
  UnitSum<Element, Rule, Lanes> sum(a, head, index);
  if (a.operand_count < kReadsAtOnce) {
    sum.template add_last<true>(0);
  } else {
    sum.template add<kReadsAtOnce, true>(0);
    int s = kReadsAtOnce;
    for (; s + kReadsAtOnce <= a.operand_count; s += kReadsAtOnce) {
      sum.template add<kReadsAtOnce, false>(s);
    }
    sum.template add_last<false>(s);
  }
  sum.store();
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
