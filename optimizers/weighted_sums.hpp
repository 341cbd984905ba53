#pragma once

#include <type_traits>

#include "bluefog_cpp/base/buffer_view.hpp"
#include "optimizers/flat_arithmetic.hpp"

namespace bluefog::optimizers {

// Push-sum's x, of which the model shows the quotient z = x / w. The model is stepped at z, and
// x moves by as much: x ← w z + (step(z) − z), in two passes, so that all of z may be read before
// any of it is stepped.

/// x ← w z.
inline void hold_sum(const ConstBufferView& z, double w, const BufferView& x) {
  update_elements([w](const auto& quotient,
                      auto& sum) { sum = static_cast<std::decay_t<decltype(sum)>>(w) * quotient; },
                  z, x);
}

/// x ← w z − z: the first pass.
inline void hold_sum_without_step(const ConstBufferView& z, double w, const BufferView& x) {
  hold_sum(z, w - 1.0, x);
}

/// x ← x + step(z): the second pass.
inline void add_stepped(const ConstBufferView& stepped, const BufferView& x) {
  update_elements([](const auto& value, auto& sum) { sum += value; }, stepped, x);
}

/// z ← x / w. @param x may be longer than z.
inline void show_quotient(const ConstBufferView& x, double w, const BufferView& z) {
  update_elements(
      [w](auto& quotient, const auto& sum) {
        quotient = sum / static_cast<std::decay_t<decltype(sum)>>(w);
      },
      z, x);
}

}  // namespace bluefog::optimizers
