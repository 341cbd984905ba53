#pragma once

#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ops/compression.hpp"
#include "tests/bodies/optimizers/support.hpp"

namespace bluefog::testing {

/// C of float64 values.
inline at::Tensor decoded_code(const ops::Compression& compression, const at::Tensor& x) {
  const at::Tensor values = x.to(at::kFloat).contiguous().clone();
  const std::span elements(values.data_ptr<float>(), static_cast<std::size_t>(values.numel()));
  std::vector<std::byte> code(compression.bytes_of(elements.size()));
  compression.encode(elements, code);
  compression.decode(code, elements);
  return values.to(at::kDouble);
}

/// One bucket of one parameter.
inline std::vector<optimizers::Bucket> one_bucket(const at::Tensor& parameter) {
  return optimizers::make_buckets({{"p", parameter}}, 1 << 20, 1 << 20,
                                  [](std::int64_t count, const at::TensorOptions& options) {
                                    return at::zeros({count}, options);
                                  });
}

/// An algorithm with a code, over one bucket.
inline optimizers::DistributedOptimizerOptions coded_options(
    optimizers::AlgorithmName algorithm, const std::string& code,
    std::map<std::string, double, std::less<>> numbers = {}) {
  optimizers::DistributedOptimizerOptions options;
  options.algorithm = algorithm;
  options.compression = code.empty() ? nullptr : ops::compression_named(code);
  options.numbers = std::move(numbers);
  return options;
}

}  // namespace bluefog::testing
