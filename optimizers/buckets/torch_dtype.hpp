#pragma once

#include <c10/core/ScalarType.h>

#include <optional>

#include "bluefog_cpp/dtype.hpp"

namespace bluefog::optimizers {

/// Our name for a dtype of torch's; nothing for those that no operation takes (complex, quantised).
[[nodiscard]] inline std::optional<Dtype> dtype_named(c10::ScalarType type) {
  switch (type) {
    case c10::ScalarType::Half:
      return Dtype::Float16;
    case c10::ScalarType::BFloat16:
      return Dtype::BFloat16;
    case c10::ScalarType::Float:
      return Dtype::Float32;
    case c10::ScalarType::Double:
      return Dtype::Float64;
    case c10::ScalarType::Byte:
      return Dtype::UInt8;
    case c10::ScalarType::Char:
      return Dtype::Int8;
    case c10::ScalarType::Short:
      return Dtype::Int16;
    case c10::ScalarType::Int:
      return Dtype::Int32;
    case c10::ScalarType::Long:
      return Dtype::Int64;
    case c10::ScalarType::Bool:
      return Dtype::Bool;
    default:
      return std::nullopt;
  }
}

}  // namespace bluefog::optimizers
