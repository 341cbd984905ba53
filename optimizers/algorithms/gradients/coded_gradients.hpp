#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "optimizers/algorithms/codes/coded_mean.hpp"
#include "optimizers/algorithms/codes/decoding.hpp"
#include "optimizers/algorithms/gradients/gradient_means.hpp"

namespace bluefog::optimizers {

/// Means of codes of gradients (`CodedMean`, β = 1 or none), with the flags beside them. A parameter
/// without a gradient on any rank keeps what its codes have left.
///
/// A round in which any gradient of any rank is not finite leaves what all codes have left as it was,
/// on all ranks: such a step is not made (`GradScaler`), and what was sent in it is nowhere.
class CodedGradients final : public GradientMeans {
 public:
  /// Arguments and errors are those of `make_gradient_means`.
  CodedGradients(Context& context, std::vector<Bucket>& buckets, const GradientCode& code);

  void prepare(std::size_t b, std::span<const std::uint8_t> flags) override;
  [[nodiscard]] Work send(std::size_t b) override { return means_[b].send(); }
  [[nodiscard]] std::size_t later_calls() const override { return decoding_calls(*compression_); }
  void finish() override;
  void forget() override;
  /// "error of bucket 0", ….
  [[nodiscard]] NamedTensors state() const override;
  void restart() override;

 private:
  /// Whether all that any rank has coded is.
  [[nodiscard]] bool are_finite() const;

  Context& context_;
  std::vector<Bucket>& buckets_;
  std::shared_ptr<const ops::Compression> compression_;
  std::vector<CodedMean> means_;
  CodedMean::Scratch scratch_;
};

}  // namespace bluefog::optimizers
