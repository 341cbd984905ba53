#pragma once

#include <ATen/core/Tensor.h>

namespace bluefog::optimizers {

// Push-sum's x, whose quotient z = x / w is the model. The model is stepped at z, and x moves by as
// much: x ← w z + (step(z) − z), in two passes, so that all of z may be read before any of it is
// stepped.
//
// z and x are flat, of float32 or float64; x may be longer. w is one element of some floating type
// on the same device: the host does not wait for it.

/// x ← (w − taken) z, with w − taken rounded once, to z's type.
void hold_sum(const at::Tensor& z, const at::Tensor& w, double taken, const at::Tensor& x);

/// x ← w z − z: the first pass.
inline void hold_sum_without_step(const at::Tensor& z, const at::Tensor& w, const at::Tensor& x) {
  hold_sum(z, w, 1.0, x);
}

/// x ← x + step(z): the second pass.
void add_stepped(const at::Tensor& stepped, const at::Tensor& x);

/// z ← x / w.
void show_quotient(const at::Tensor& x, const at::Tensor& w, const at::Tensor& z);

}  // namespace bluefog::optimizers
