#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bluefog_cpp/buffer_view.hpp"
#include "bluefog_cpp/dtype.hpp"
#include "ops/compression.hpp"
#include "ops/window/window_identity.hpp"

namespace bluefog::ops {

/// A tensor in a code: the bytes that travel between hosts, and the values that they stand for, which
/// are written inside one.
struct CodedPut {
  std::string name;
  std::vector<std::byte> code;
  std::vector<std::byte> values;
};

/// Codes a tensor of float32 or float64.
/// @throws InvalidArgument for finite values beyond float32.
[[nodiscard]] CodedPut coded_put(const WindowIdentity& window, const Compression& compression,
                                 const BufferView& tensor, std::string_view call);

/// The values of a code that has come, of that name.
/// @throws InvalidArgument for an unknown name, or another length than `count` values have.
[[nodiscard]] std::vector<std::byte> decoded_put(std::string_view name,
                                                 std::span<const std::byte> code, Dtype dtype,
                                                 std::int64_t count);

}  // namespace bluefog::ops
