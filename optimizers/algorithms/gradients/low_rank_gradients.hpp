#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "optimizers/algorithms/codes/low_rank.hpp"
#include "optimizers/algorithms/gradients/gradient_means.hpp"

namespace bluefog::optimizers {

/// Means of low rank: of a parameter's gradients as matrices Mᵢ, with a factor q that goes on from
/// round to round, of length-1 columns,
///
///     Mᵢ ← gᵢ + eᵢ;   p = mean(Mᵢ q), orthonormal;   qᵢ = Mᵢᵀ p;   q = mean(qᵢ);
///     eᵢ = Mᵢ − p qᵢᵀ;   g ← p qᵀ
///
/// which is the mean itself where that is of rank r or less. Vectors, and matrices whose factors are
/// no shorter than they, are averaged as they are. A parameter without a gradient on any rank keeps
/// e. Factors of ranks that differ after a failed round do no harm: p is common all the same.
///
/// Cost per rank and round: two all-reduces for each bucket, r (rows + columns) numbers of each
/// matrix; three products of r columns; a copy of the gradients for e.
/// Source: PowerSGD, arXiv 1905.13727, algorithms 1 and 2.
class LowRankGradients final : public GradientMeans {
 public:
  /// Arguments and errors are those of `make_gradient_means`.
  LowRankGradients(Context& context, std::vector<Bucket>& buckets, const GradientCode& code);

  void prepare(std::size_t b, std::span<const std::uint8_t> flags) override;
  [[nodiscard]] Work send(std::size_t b) override;
  [[nodiscard]] std::size_t later_calls() const override { return works_.size(); }
  void finish() override;
  void forget() override;
  /// "factor of w", …, and "error of w", ….
  [[nodiscard]] NamedTensors state() const override;
  void restart() override;

 private:
  /// A parameter, with its places in its bucket's messages.
  struct Part {
    std::size_t segment = 0;
    /// Rows of 0: it travels as it is.
    MatrixShape shape{};
    std::int64_t first = 0;
    std::int64_t later = 0;
    at::Tensor q{};
    at::Tensor left{};

    [[nodiscard]] bool is_matrix() const { return shape.rows > 0; }
    [[nodiscard]] at::Tensor p_in(const at::Tensor& message) const;
    [[nodiscard]] at::Tensor q_in(const at::Tensor& message) const;
  };
  struct Messages {
    std::vector<Part> parts;
    std::int64_t first_count = 0;
    std::int64_t later_count = 0;
    /// The averaged values: p of matrices, other gradients, flags; then q. Left to calls that go on.
    at::Tensor first;
    at::Tensor later;
    /// This rank's q.
    at::Tensor own;
  };

  void add_part(Messages& messages, const Bucket& bucket, std::size_t segment,
                const GradientCode& code);
  void begin_later(std::size_t b);
  /// Whether all sums of the round are finite.
  [[nodiscard]] bool are_finite() const;
  /// @param goes_on whether the next round goes on from this one's.
  void take_in(std::size_t b, bool goes_on);
  void take_matrix(const Messages& messages, const Part& part, const at::Tensor& gradient,
                   bool goes_on) const;
  [[nodiscard]] std::vector<std::uint8_t> flags_in(const Messages& messages) const;

  Context& context_;
  std::vector<Bucket>& buckets_;
  std::vector<Messages> messages_;
  /// The calls of `finish`: one for each bucket that has matrices.
  std::vector<Work> works_;
};

}  // namespace bluefog::optimizers
