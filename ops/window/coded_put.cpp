#include "ops/window/coded_put.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "bluefog_cpp/error.hpp"

namespace bluefog::ops {
namespace {

/// Calls `body(element)` with a value of the dtype, float32 or float64.
template <typename Body>
void with_element_of(Dtype dtype, const Body& body) {
  dtype == Dtype::Float64 ? body(double()) : body(float());
}

std::vector<std::byte> values_of(std::span<const float> decoded, Dtype dtype) {
  std::vector<std::byte> values(decoded.size() * size_of(dtype));
  with_element_of(dtype, [&]<typename Element>(Element /*selects the type*/) {
    for (std::size_t k = 0; k < decoded.size(); ++k) {
      const auto value = static_cast<Element>(decoded[k]);
      std::memcpy(values.data() + k * sizeof value, &value, sizeof value);
    }
  });
  return values;
}

}  // namespace

CodedPut coded_put(const WindowIdentity& window, const Compression& compression,
                   const BufferView& tensor, std::string_view call) {
  std::vector<float> values(static_cast<std::size_t>(tensor.count));
  with_element_of(tensor.dtype, [&]<typename Element>(Element /*selects the type*/) {
    const auto* const from = static_cast<const Element*>(tensor.data);
    for (std::size_t k = 0; k < values.size(); ++k) {
      values[k] = static_cast<float>(from[k]);
      if (std::isinf(values[k]) && std::isfinite(from[k])) {
        throw InvalidArgument(fmt::format(
            "{}: compression {}: expected values within float32, which codes are of, found {} at "
            "element {}",
            window.where(call), compression.name(), from[k], k));
      }
    }
  });
  CodedPut coded{.name = compression.name(),
                 .code = std::vector<std::byte>(compression.bytes_of(values.size())),
                 .values = {}};
  compression.encode(values, coded.code);
  compression.decode(coded.code, values);
  coded.values = values_of(values, tensor.dtype);
  return coded;
}

std::vector<std::byte> decoded_put(std::string_view name, std::span<const std::byte> code,
                                   Dtype dtype, std::int64_t count) {
  const auto compression = compression_named(name);
  std::vector<float> values(static_cast<std::size_t>(count));
  if (code.size() != compression->bytes_of(values.size())) {
    throw InvalidArgument(fmt::format("{} bytes of {}, expected {} for {} values", code.size(),
                                      name, compression->bytes_of(values.size()), count));
  }
  compression->decode(code, values);
  return values_of(values, dtype);
}

}  // namespace bluefog::ops
