#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "optimizers/bucket.hpp"

namespace bluefog::optimizers {

/// The form of a parameter as a matrix: its first dimension, and all others; and the rank r of its
/// products p qᵀ, with p of rows × r and q of columns × r.
struct MatrixShape {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t rank = 0;
};

/// The parameter's form; nothing where factors of rank r are no shorter than the parameter.
[[nodiscard]] std::optional<MatrixShape> matrix_shape(const Segment& segment, std::int64_t rank);

/// The parameter's place in a flat tensor of its bucket's layout, in the parameter's shape.
[[nodiscard]] at::Tensor place_in(const at::Tensor& flat, const Segment& segment);

/// A tensor of a parameter's shape as a matrix: in place, or a copy where its memory is in another
/// order.
[[nodiscard]] at::Tensor as_matrix(const at::Tensor& tensor, const MatrixShape& shape);

/// Columns become orthonormal, in their order; one that depends on those before it becomes zeros.
/// NaN and infinity stay so. @param p contiguous, of float32 or float64. The same bits on every
/// machine.
void orthonormalize(const at::Tensor& p);

/// Columns become of length 1; those of zeros, or not finite, are drawn by the seed. Else as above.
void prepare_factor(const at::Tensor& q, std::uint64_t seed);

/// p qᵀ, with the same bits on every machine.
[[nodiscard]] at::Tensor product(const at::Tensor& p, const at::Tensor& q);

}  // namespace bluefog::optimizers
