#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

#include "optimizers/parameter.hpp"

namespace bluefog::python {

/// Tensors with their names, as Python has them.
using NamedPairs = std::vector<std::pair<std::string, at::Tensor>>;

inline optimizers::NamedTensors named_tensors(const NamedPairs& pairs) {
  optimizers::NamedTensors tensors;
  for (const auto& [name, tensor] : pairs) {
    tensors.push_back({name, tensor});
  }
  return tensors;
}

}  // namespace bluefog::python
