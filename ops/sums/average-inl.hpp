// Averages of operands in vectors, for each instruction set: included once per Highway target.
#if defined(BLUEFOG_OPS_AVERAGE_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef BLUEFOG_OPS_AVERAGE_INL
#undef BLUEFOG_OPS_AVERAGE_INL
#else
#define BLUEFOG_OPS_AVERAGE_INL
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

#include "ops/sums/average.hpp"
#include "ops/sums/half_lanes-inl.hpp"
#include "ops/sums/operand.hpp"

HWY_BEFORE_NAMESPACE();
namespace bluefog::ops::HWY_NAMESPACE {

/// Elements that are averaged at once where operands are many.
constexpr std::size_t kBlock = 512;

/// An average's operands, the base first, and what is done with each difference from the base.
class Weighted {
 public:
  Weighted(std::span<const Operand> operands, std::size_t base)
      : operands_(operands), base_(base) {}

  [[nodiscard]] std::size_t size() const { return operands_.size(); }
  [[nodiscard]] const std::byte* data(std::size_t s) const { return at(s).data; }
  template <class D>
  [[nodiscard]] hn::Vec<D> factor(D d, std::size_t s) const {
    return hn::Set(d, static_cast<hn::TFromD<D>>(at(s).weight));
  }
  template <class V>
  static V term(V difference, V factor) {
    return hn::Mul(difference, factor);
  }
  template <class V>
  static V whole(V total, V /*factor*/) {
    return total;
  }
  /// An operand's part of the result where differences do not serve.
  template <class V>
  static V part(V value, V factor) {
    return hn::Mul(value, factor);
  }

 private:
  [[nodiscard]] const Operand& at(std::size_t s) const { return operands_[from_base(base_, s)]; }

  std::span<const Operand> operands_;
  std::size_t base_;
};

/// The same of a mean, whose differences are divided once, all together.
class Unweighted {
 public:
  explicit Unweighted(std::span<const std::byte* const> operands) : operands_(operands) {}

  [[nodiscard]] std::size_t size() const { return operands_.size(); }
  [[nodiscard]] const std::byte* data(std::size_t s) const { return operands_[s]; }
  template <class D>
  [[nodiscard]] hn::Vec<D> factor(D d, std::size_t /*s*/) const {
    return hn::Set(d, static_cast<hn::TFromD<D>>(size()));
  }
  template <class V>
  static V term(V difference, V /*factor*/) {
    return difference;
  }
  template <class V>
  static V whole(V total, V factor) {
    return hn::Div(total, factor);
  }
  template <class V>
  static V part(V value, V factor) {
    return hn::Div(value, factor);
  }

 private:
  std::span<const std::byte* const> operands_;
};

template <class Lanes, class Form>
const typename Lanes::Stored* data_of(const Form& form, std::size_t s) {
  return reinterpret_cast<const typename Lanes::Stored*>(form.data(s < form.size() ? s : 0));
}

template <class Form, class D>
hn::Vec<D> factor_of(D d, const Form& form, std::size_t s) {
  return form.factor(d, s < form.size() ? s : 0);
}

/// The vector at element k without differences: the operands' parts, the base's first.
template <class Lanes, class Form, class D>
HWY_NOINLINE hn::Vec<D> sum_of_parts(D d, const Form& form, std::size_t k) {
  const auto part = [&](std::size_t s) {
    return Form::part(Lanes::load(d, data_of<Lanes>(form, s) + k), factor_of(d, form, s));
  };
  auto total = part(0);
  for (std::size_t s = 1; s < form.size(); ++s) {
    total = hn::Add(total, part(s));
  }
  return total;
}

template <class Lanes, class Form, class D>
void store_average(D d, typename Lanes::Stored* out, const Form& form, hn::Vec<D> average,
                   std::size_t k) {
  if (HWY_UNLIKELY(!hn::AllTrue(d, hn::IsFinite(average)))) {
    average = hn::IfThenElse(hn::IsFinite(average), average, sum_of_parts<Lanes>(d, form, k));
  }
  Lanes::store(average, d, out + k);
}

/// Stores `average(k)` of elements [k, count), in whole vectors. @return where it ended.
template <class Lanes, class Form, class D, class Average>
std::size_t store_averages(D d, typename Lanes::Stored* out, const Form& form,
                           const Average& average, std::size_t k, std::size_t count) {
  const std::size_t lanes = hn::Lanes(d);
  for (; k + 4 * lanes <= count; k += 4 * lanes) {
    const auto a0 = average(k);
    const auto a1 = average(k + lanes);
    const auto a2 = average(k + 2 * lanes);
    const auto a3 = average(k + 3 * lanes);
    // A sum of four is finite only where each of them is.
    if (HWY_LIKELY(hn::AllTrue(d, hn::IsFinite(hn::Add(hn::Add(a0, a1), hn::Add(a2, a3)))))) {
      Lanes::store_finite(a0, d, out + k);
      Lanes::store_finite(a1, d, out + k + lanes);
      Lanes::store_finite(a2, d, out + k + 2 * lanes);
      Lanes::store_finite(a3, d, out + k + 3 * lanes);
    } else {
      store_average<Lanes>(d, out, form, a0, k);
      store_average<Lanes>(d, out, form, a1, k + lanes);
      store_average<Lanes>(d, out, form, a2, k + 2 * lanes);
      store_average<Lanes>(d, out, form, a3, k + 3 * lanes);
    }
  }
  for (; k + lanes <= count; k += lanes) {
    store_average<Lanes>(d, out, form, average(k), k);
  }
  return k;
}

template <class Lanes, std::size_t N, class Form, class D>
std::size_t average_few(D d, typename Lanes::Stored* out, const Form& form, std::size_t k,
                        std::size_t count) {
  const auto* const x0 = data_of<Lanes>(form, 0);
  const auto* const x1 = data_of<Lanes>(form, 1);
  const auto* const x2 = data_of<Lanes>(form, 2);
  const auto* const x3 = data_of<Lanes>(form, 3);
  const auto f0 = factor_of(d, form, 0);
  const auto f1 = factor_of(d, form, 1);
  const auto f2 = factor_of(d, form, 2);
  const auto f3 = factor_of(d, form, 3);
  const auto average = [&](std::size_t i) {
    const auto base = Lanes::load(d, x0 + i);
    if constexpr (N == 1) {
      return base;
    } else {
      auto total = Form::term(hn::Sub(base, Lanes::load(d, x1 + i)), f1);
      if constexpr (N > 2) {
        total = hn::Add(total, Form::term(hn::Sub(base, Lanes::load(d, x2 + i)), f2));
      }
      if constexpr (N > 3) {
        total = hn::Add(total, Form::term(hn::Sub(base, Lanes::load(d, x3 + i)), f3));
      }
      return hn::Sub(base, Form::whole(total, f0));
    }
  };
  return store_averages<Lanes>(d, out, form, average, k, count);
}

/// The base and the terms' totals of some elements, kept beside the operands where these are many.
template <class Lanes>
struct Block {
  static constexpr bool kConverts = sizeof(typename Lanes::Stored) != sizeof(typename Lanes::Sum);

  /// The base where it lies, or its copy in the type of the sums: halves are converted once.
  const typename Lanes::Sum* base = nullptr;
  alignas(64) std::array<typename Lanes::Sum, kConverts ? kBlock : 0> converted;
  alignas(64) std::array<typename Lanes::Sum, kBlock> totals;
};

template <class Lanes, class D>
void take_base(D d, Block<Lanes>& block, const typename Lanes::Stored* from, std::size_t elements) {
  if constexpr (Block<Lanes>::kConverts) {
    for (std::size_t i = 0; i < elements; i += hn::Lanes(d)) {
      hn::StoreU(Lanes::load(d, from + i), d, &block.converted[i]);
    }
    block.base = block.converted.data();
  } else {
    block.base = from;
  }
}

/// Adds the terms of `Count` operands from number `s` on to the totals of a block.
template <class Lanes, std::size_t Count, class Form, class D>
void add_terms(D d, const Form& form, std::size_t s, Block<Lanes>& block, std::size_t k,
               std::size_t elements) {
  const auto* const x1 = data_of<Lanes>(form, s) + k;
  const auto* const x2 = data_of<Lanes>(form, s + 1) + k;
  const auto* const x3 = data_of<Lanes>(form, s + 2) + k;
  const auto f1 = factor_of(d, form, s);
  const auto f2 = factor_of(d, form, s + 1);
  const auto f3 = factor_of(d, form, s + 2);
  const auto* const x0 = block.base;
  auto* const totals = block.totals.data();
  for (std::size_t i = 0; i < elements; i += hn::Lanes(d)) {
    const auto base = hn::LoadU(d, x0 + i);
    auto total = Form::term(hn::Sub(base, Lanes::load(d, x1 + i)), f1);
    if (s > 1) {
      total = hn::Add(hn::LoadU(d, totals + i), total);
    }
    if constexpr (Count > 1) {
      total = hn::Add(total, Form::term(hn::Sub(base, Lanes::load(d, x2 + i)), f2));
    }
    if constexpr (Count > 2) {
      total = hn::Add(total, Form::term(hn::Sub(base, Lanes::load(d, x3 + i)), f3));
    }
    hn::StoreU(total, d, totals + i);
  }
}

template <class Lanes, class Form, class D>
void add_all_terms(D d, const Form& form, Block<Lanes>& block, std::size_t k,
                   std::size_t elements) {
  std::size_t s = 1;
  for (; s + 3 <= form.size(); s += 3) {
    add_terms<Lanes, 3>(d, form, s, block, k, elements);
  }
  if (form.size() - s == 2) {
    add_terms<Lanes, 2>(d, form, s, block, k, elements);
  } else if (form.size() - s == 1) {
    add_terms<Lanes, 1>(d, form, s, block, k, elements);
  }
}

/// Averages like `average_few`, any number of operands: block by block, so that `out` may be any
/// of them.
template <class Lanes, class Form, class D>
std::size_t average_many(D d, typename Lanes::Stored* out, const Form& form, std::size_t k,
                         std::size_t count) {
  const std::size_t lanes = hn::Lanes(d);
  const auto f0 = factor_of(d, form, 0);
  Block<Lanes> block;
  while (k + lanes <= count) {
    const std::size_t elements = std::min(kBlock, (count - k) / lanes * lanes);
    take_base<Lanes>(d, block, data_of<Lanes>(form, 0) + k, elements);
    add_all_terms<Lanes>(d, form, block, k, elements);
    const auto* const x0 = block.base;
    const auto* const totals = block.totals.data();
    const auto average = [&](std::size_t i) {
      return hn::Sub(hn::LoadU(d, x0 + (i - k)), Form::whole(hn::LoadU(d, totals + (i - k)), f0));
    };
    k = store_averages<Lanes>(d, out, form, average, k, k + elements);
  }
  return k;
}

template <class Lanes, class Form, class D>
std::size_t average_range(D d, typename Lanes::Stored* out, const Form& form, std::size_t k,
                          std::size_t count) {
  switch (form.size()) {
    case 1:
      return average_few<Lanes, 1>(d, out, form, k, count);
    case 2:
      return average_few<Lanes, 2>(d, out, form, k, count);
    case 3:
      return average_few<Lanes, 3>(d, out, form, k, count);
    case 4:
      return average_few<Lanes, 4>(d, out, form, k, count);
    default:
      return average_many<Lanes>(d, out, form, k, count);
  }
}

}  // namespace bluefog::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
