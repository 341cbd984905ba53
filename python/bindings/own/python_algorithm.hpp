#pragma once

#include <cstddef>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "optimizers/algorithm.hpp"
#include "optimizers/algorithm_row.hpp"
#include "python/bindings/own/python_object.hpp"

namespace bluefog::python {

/// An algorithm of a class of Python's (`bluefog_cpp.torch.Algorithm`), which says what a round
/// does. Its state lies here, so that checkpoints see it as that of others.
///
/// Members are called without the interpreter's lock; Python's methods run with it, and let it go
/// in the calls that they make.
class PythonAlgorithm final : public optimizers::Algorithm {
 public:
  /// Collective: ranks whose class cannot be made, or is another one, are named on all of them.
  /// @param name of the class, which Python knows.
  PythonAlgorithm(optimizers::AlgorithmParts parts, std::string name);

  [[nodiscard]] bool averages_with_neighbors() const noexcept override { return has_neighbors_; }
  [[nodiscard]] std::size_t calls_due() const override { return calls_due_; }
  void step(const optimizers::Round& round, const optimizers::StepBucket& step_bucket) override;
  void step_alone(const optimizers::StepBucket& step_bucket) override;
  [[nodiscard]] optimizers::NamedTensors state() const override;
  void restart() override;

 private:
  /// A value that is no parameter's.
  struct Scalar {
    std::string name;
    double initial = 0.0;
    at::Tensor value;  ///< float64[1]
  };

  void make(const optimizers::AlgorithmParts& parts);
  [[nodiscard]] py::list bucket_parts() const;
  /// Names and first values, as ranks compare them.
  [[nodiscard]] std::vector<std::string> scalar_texts() const;
  void run(const char* method, const optimizers::Round* round,
           const optimizers::StepBucket& step_bucket, std::size_t calls);
  /// The error of a method, for other ranks.
  [[nodiscard]] std::string place(std::string_view method, const std::exception& error) const;

  Context& context_;
  std::string name_;
  PythonObject object_;
  bool has_neighbors_ = true;
  std::size_t calls_due_ = 0;
  std::vector<std::string> state_names_;
  /// Tensors by name, then by bucket.
  std::vector<std::vector<at::Tensor>> states_;
  std::vector<Scalar> scalars_;
};

}  // namespace bluefog::python
