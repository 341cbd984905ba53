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

/// The result of a kernel of weighted sums (the first two) or of plain ones (the others).
enum class SumForm : std::int32_t {
  Products,  ///< as `weighted_sum` where the weights do not sum to 1
  Average,   ///< as `weighted_average`: the base is the first operand
  Sum,       ///< as `plain_sum`
  Mean,      ///< as `mean`, of a floating dtype
};

/// The argument of every sum kernel, passed by value.
struct SumArguments {
  void* out;
  std::int64_t count;
  SumForm form;
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
template <typename Number>
struct Products {
  static constexpr bool kCountsFromBase = false;
  static BF_HOST_DEVICE Number part(Number value, const SumArguments& a, int s) {
    return product(value, static_cast<Number>(a.operands[s].weight));
  }
};

/// Σ_s x_s in the order of the operands; integers wrap around.
template <typename Number>
struct Unweighted {
  static constexpr bool kCountsFromBase = false;
  static BF_HOST_DEVICE Number part(Number value, const SumArguments& /*a*/, int /*s*/) {
    return value;
  }
};

/// Σ_s x_s / n in the order of the operands.
template <typename Number>
struct Quotients {
  static constexpr bool kCountsFromBase = false;
  static BF_HOST_DEVICE Number part(Number value, const SumArguments& a, int /*s*/) {
    return quotient(value, static_cast<Number>(a.operand_count));
  }
};

/// x_0 − Σ_s weight_s (x_0 − x_s); `Parts` is the rule of elements where that is not finite.
template <typename Number>
struct WeightedAverage {
  static constexpr bool kCountsFromBase = true;
  using Parts = Products<Number>;
  static BF_HOST_DEVICE Number part(Number from_base, const SumArguments& a, int s) {
    return product(from_base, static_cast<Number>(a.operands[s].weight));
  }
  static BF_HOST_DEVICE Number whole(Number total, const SumArguments& /*a*/) { return total; }
};

/// x_0 − (Σ_s (x_0 − x_s)) / n.
template <typename Number>
struct PlainMean {
  static constexpr bool kCountsFromBase = true;
  using Parts = Quotients<Number>;
  static BF_HOST_DEVICE Number part(Number from_base, const SumArguments& /*a*/, int /*s*/) {
    return from_base;
  }
  static BF_HOST_DEVICE Number whole(Number total, const SumArguments& a) {
    return quotient(total, static_cast<Number>(a.operand_count));
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
template <typename Element, typename Rule, int Lanes>
class UnitSum {
 public:
  using Sum = typename Element::Sum;

  BF_HOST_DEVICE UnitSum(const SumArguments& a, std::int64_t head, std::int64_t index)
      : a_(a), head_(head), index_(index) {
    if (a_.operand_count < kReadsAtOnce) {
      add_last<true>(0);
    } else {
      add<kReadsAtOnce, true>(0);
      int s = kReadsAtOnce;
      for (; s + kReadsAtOnce <= a_.operand_count; s += kReadsAtOnce) {
        add<kReadsAtOnce, false>(s);
      }
      add_last<false>(s);
    }
  }

  [[nodiscard]] BF_HOST_DEVICE Sum result(int lane) const {
    if constexpr (Rule::kCountsFromBase) {
      return difference(bases_[lane], Rule::whole(totals_[lane], a_));
    } else {
      return totals_[lane];
    }
  }

  BF_HOST_DEVICE void store() const {
    Sum results[Lanes];
    bool are_finite = true;
    for (int lane = 0; lane < Lanes; ++lane) {
      results[lane] = result(lane);
      if constexpr (Rule::kCountsFromBase) {
        are_finite = are_finite && is_finite(results[lane]);
      }
    }
    if (!are_finite) {
      take_parts(results);
    }
    Unit unit;
    for (int lane = 0; lane < Lanes; ++lane) {
      element(unit, lane) = Element::store(results[lane]);
    }
    store_unit<Unit>(static_cast<Stored*>(a_.out) + head_, index_, unit);
  }

 private:
  using Stored = typename Element::Stored;
  using Unit = std::conditional_t<Lanes == 1, Stored, Pack<Stored>>;

  /// Operands `s` to `s + Count - 1`.
  template <int Count, bool IsBeginning>
  BF_HOST_DEVICE void add(int s) {
    Unit units[Count];
    for (int k = 0; k < Count; ++k) {
      units[k] = load_unit<Unit>(begin_of(a_.operands[s + k].data), index_);
    }
    for (int k = 0; k < Count; ++k) {
      for (int lane = 0; lane < Lanes; ++lane) {
        add_value<IsBeginning>(Element::load(element(units[k], lane)), lane, s, k);
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

  template <bool IsBeginning>
  BF_HOST_DEVICE void add_value(Sum value, int lane, int s, int k) {
    constexpr int kFirst = Rule::kCountsFromBase ? 1 : 0;
    if constexpr (Rule::kCountsFromBase) {
      if (IsBeginning && k == 0) {
        bases_[lane] = value;
        return;
      }
      value = difference(bases_[lane], value);
    }
    const Sum part = Rule::part(value, a_, s + k);
    totals_[lane] = IsBeginning && k == kFirst ? part : sum(totals_[lane], part);
  }

  /// Replaces results that are not finite. Nothing has been stored: the operands are as they were.
  BF_HOST_DEVICE void take_parts(Sum (&results)[Lanes]) const {
    if constexpr (Rule::kCountsFromBase) {
      const UnitSum<Element, typename Rule::Parts, Lanes> parts(a_, head_, index_);
      for (int lane = 0; lane < Lanes; ++lane) {
        results[lane] = is_finite(results[lane]) ? results[lane] : parts.result(lane);
      }
    }
  }

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
  /// The base's values, of rules that count from it.
  Sum bases_[Rule::kCountsFromBase ? Lanes : 1] = {};
  Sum totals_[Lanes] = {};
};

/// Thread `thread` of `threads`: its share of the whole sum. Elements before and behind the packs
/// go one by one. Everything is read before `out` is written: it may be any operand, at the same
/// address.
template <typename Element, typename Rule>
BF_HOST_DEVICE inline void sum_share(const SumArguments& a, std::int64_t thread,
                                     std::int64_t threads) {
  constexpr std::int64_t kLanes = kPackBytes / sizeof(typename Element::Stored);
  const std::int64_t head = unaligned_head<typename Element::Stored>(a);
  const std::int64_t packs = (a.count - head) / kLanes;
  for (std::int64_t k = thread; k < packs; k += threads) {
    UnitSum<Element, Rule, static_cast<int>(kLanes)>(a, head, k).store();
  }
  const std::int64_t behind = head + packs * kLanes;
  for (std::int64_t k = thread; k < head + (a.count - behind); k += threads) {
    UnitSum<Element, Rule, 1>(a, 0, k < head ? k : behind + (k - head)).store();
  }
}

/// The kernels of weighted sums.
template <typename Element>
BF_HOST_DEVICE inline void weighted_share(const SumArguments& a, std::int64_t thread,
                                          std::int64_t threads) {
  using Number = typename Element::Sum;
  if (a.form == SumForm::Average) {
    sum_share<Element, WeightedAverage<Number>>(a, thread, threads);
  } else {
    sum_share<Element, Products<Number>>(a, thread, threads);
  }
}

/// The kernels of plain sums.
template <typename Element>
BF_HOST_DEVICE inline void plain_share(const SumArguments& a, std::int64_t thread,
                                       std::int64_t threads) {
  using Number = typename Element::Sum;
  if constexpr (std::is_floating_point_v<Number>) {
    if (a.form == SumForm::Mean) {
      sum_share<Element, PlainMean<Number>>(a, thread, threads);
      return;
    }
  }
  sum_share<Element, Unweighted<Number>>(a, thread, threads);
}

}  // namespace bluefog::ops::cuda
