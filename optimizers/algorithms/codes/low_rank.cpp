#include "optimizers/algorithms/codes/low_rank.hpp"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <type_traits>

#include "bluefog_cpp/error.hpp"

namespace bluefog::optimizers {
namespace {

/// Calls `body(element)` with a value of the matrix's type.
template <typename Body>
void with_element_of(const at::Tensor& matrix, const Body& body) {
  if (!matrix.is_contiguous() || !matrix.is_cpu()) {
    throw InternalError("low rank: factors lie row by row, on the CPU");
  }
  matrix.scalar_type() == at::kDouble ? body(double()) : body(float());
}

/// A column of a contiguous matrix.
template <typename Element>
class Column {
 public:
  Column(const at::Tensor& matrix, std::int64_t column)
      : first_(matrix.data_ptr<Element>() + column), rows_(matrix.size(0)), step_(matrix.size(1)) {}

  [[nodiscard]] std::int64_t rows() const { return rows_; }
  Element& operator[](std::int64_t row) const { return first_[row * step_]; }
  [[nodiscard]] double dot(const Column& other) const {
    double sum = 0.0;
    for (std::int64_t i = 0; i < rows_; ++i) {
      sum += static_cast<double>((*this)[i]) * static_cast<double>(other[i]);
    }
    return sum;
  }
  [[nodiscard]] double length() const { return std::sqrt(dot(*this)); }
  void scale(double factor) const {
    for (std::int64_t i = 0; i < rows_; ++i) {
      (*this)[i] = static_cast<Element>(factor * static_cast<double>((*this)[i]));
    }
  }
  void take_out(const Column& unit) const {
    const double share = dot(unit);
    for (std::int64_t i = 0; i < rows_; ++i) {
      (*this)[i] -= static_cast<Element>(share * static_cast<double>(unit[i]));
    }
  }

 private:
  Element* first_;
  std::int64_t rows_;
  std::int64_t step_;
};

/// From −1 to 1. Source: splitmix64, Vigna.
double drawn(std::uint64_t number) {
  number += 0x9e3779b97f4a7c15U;
  number = (number ^ (number >> 30U)) * 0xbf58476d1ce4e5b9U;
  number = (number ^ (number >> 27U)) * 0x94d049bb133111ebU;
  number ^= number >> 31U;
  return static_cast<double>(number >> 11U) * 0x1p-52 - 1.0;
}

}  // namespace

std::optional<MatrixShape> matrix_shape(const Segment& segment, std::int64_t rank) {
  if (segment.sizes.size() < 2 || segment.count() == 0) {
    return std::nullopt;
  }
  const std::int64_t rows = segment.sizes.front();
  const std::int64_t columns = segment.count() / rows;
  if (rank * (rows + columns) >= rows * columns) {
    return std::nullopt;
  }
  return MatrixShape{.rows = rows, .columns = columns, .rank = rank};
}

at::Tensor place_in(const at::Tensor& flat, const Segment& segment) {
  return at::as_strided(flat, segment.sizes, segment.strides, segment.offset);
}

at::Tensor as_matrix(const at::Tensor& tensor, const MatrixShape& shape) {
  return tensor.reshape({shape.rows, shape.columns});
}

void orthonormalize(const at::Tensor& p) {
  with_element_of(p, [&]<typename Element>(Element /*selects the type*/) {
    // Rounding leaves this much of a column that depends on others.
    constexpr double kNothing = std::is_same_v<Element, float> ? 1e-5 : 1e-13;
    for (std::int64_t k = 0; k < p.size(1); ++k) {
      const Column<Element> column(p, k);
      const double before = column.length();
      for (int times = 0; times < 2; ++times) {  // one leaves too much where most is taken out
        for (std::int64_t j = 0; j < k; ++j) {
          column.take_out(Column<Element>(p, j));
        }
      }
      const double after = column.length();
      const bool is_nothing = after <= kNothing * before;
      column.scale(!std::isfinite(before) ? std::numeric_limits<double>::quiet_NaN()
                   : is_nothing           ? 0.0
                                          : 1.0 / after);
    }
  });
}

void prepare_factor(const at::Tensor& q, std::uint64_t seed) {
  with_element_of(q, [&]<typename Element>(Element /*selects the type*/) {
    for (std::int64_t k = 0; k < q.size(1); ++k) {
      const Column<Element> column(q, k);
      double length = column.length();
      if (!std::isfinite(length) || length == 0.0) {
        for (std::int64_t i = 0; i < column.rows(); ++i) {
          const auto place = static_cast<std::uint64_t>(k * column.rows() + i);
          column[i] = static_cast<Element>(drawn(seed * 0x9e3779b97f4a7c15U + place));
        }
        length = column.length();
      }
      column.scale(1.0 / length);
    }
  });
}

at::Tensor product(const at::Tensor& p, const at::Tensor& q) {
  at::Tensor result = at::zeros({p.size(0), q.size(0)}, p.options());
  const at::Tensor transposed = q.t().contiguous();
  with_element_of(p, [&]<typename Element>(Element /*selects the type*/) {
    const std::int64_t columns = q.size(0);
    const std::int64_t rank = p.size(1);
    const auto* const left = p.const_data_ptr<Element>();
    const auto* const right = transposed.const_data_ptr<Element>();
    auto* const to = result.data_ptr<Element>();
    for (std::int64_t i = 0; i < p.size(0); ++i) {
      for (std::int64_t k = 0; k < rank; ++k) {
        const Element factor = left[i * rank + k];
        for (std::int64_t j = 0; j < columns; ++j) {
          to[i * columns + j] += factor * right[k * columns + j];
        }
      }
    }
  });
  return result;
}

}  // namespace bluefog::optimizers
