#pragma once

#include <cstddef>
#include <span>

namespace bluefog::ops {

/// Values of which the largest are taken.
inline constexpr std::size_t kTopKChunk = 4096;

/// The code of each chunk: 16-bit places, rising, then their float32 values.
[[nodiscard]] std::size_t top_k_bytes(std::size_t kept_of_chunk, std::size_t count) noexcept;
void encode_top_k(std::size_t kept_of_chunk, std::span<const float> values, std::byte* code);
void decode_top_k(std::size_t kept_of_chunk, const std::byte* code, std::span<float> values);

/// The same with 8 bits a value: the places of all chunks, then the values of all as `BlockForm::Int8`.
[[nodiscard]] std::size_t top_k8_bytes(std::size_t kept_of_chunk, std::size_t count) noexcept;
void encode_top_k8(std::size_t kept_of_chunk, std::span<const float> values, std::byte* code);
void decode_top_k8(std::size_t kept_of_chunk, const std::byte* code, std::span<float> values);

}  // namespace bluefog::ops
