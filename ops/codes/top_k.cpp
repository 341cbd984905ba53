#include "ops/codes/top_k.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <vector>

#include "ops/codes/block_codes.hpp"

namespace bluefog::ops {
namespace {

using Place = std::uint16_t;
/// In the first place: more values are not finite than are kept, and all of the chunk is NaN.
constexpr Place kNotFinite = 0xffff;
constexpr std::uint32_t kInfinityBits = 0x7f800000U;
constexpr std::size_t kEntryBytes = sizeof(Place) + sizeof(float);

/// A shorter chunk gives as large a share, rounded up.
std::size_t kept_of(std::size_t kept_of_chunk, std::size_t count) noexcept {
  return (kept_of_chunk * count + kTopKChunk - 1) / kTopKChunk;
}

/// Calls `use(first, count, kept, offset)` for each chunk, with the place of its code.
template <typename Use>
void for_each_chunk(std::size_t kept_of_chunk, std::size_t count, const Use& use) {
  std::size_t offset = 0;
  for (std::size_t first = 0; first < count; first += kTopKChunk) {
    const std::size_t size = std::min(kTopKChunk, count - first);
    const std::size_t kept = kept_of(kept_of_chunk, size);
    use(first, size, kept, offset);
    offset += kept * kEntryBytes;
  }
}

}  // namespace

std::size_t top_k_bytes(std::size_t kept_of_chunk, std::size_t count) noexcept {
  return (count / kTopKChunk * kept_of_chunk + kept_of(kept_of_chunk, count % kTopKChunk)) *
         kEntryBytes;
}

void encode_top_k(std::size_t kept_of_chunk, std::span<const float> values, std::byte* code) {
  std::array<std::uint64_t, kTopKChunk> order;
  std::array<Place, kTopKChunk> places;
  for_each_chunk(kept_of_chunk, values.size(), [&](auto first, auto size, auto kept, auto offset) {
    // Larger magnitudes first, NaN before all; of equal ones the first.
    for (std::size_t k = 0; k < size; ++k) {
      const std::uint64_t magnitude = std::bit_cast<std::uint32_t>(values[first + k]) & 0x7fffffffU;
      order[k] = magnitude << 16U | (kTopKChunk - 1 - k);
    }
    const auto end = order.begin() + static_cast<std::ptrdiff_t>(size);
    const auto last = order.begin() + static_cast<std::ptrdiff_t>(kept);
    if (last != end) {
      std::nth_element(order.begin(), last, end, std::greater<>{});
    }
    for (std::size_t i = 0; i < kept; ++i) {
      places[i] = static_cast<Place>(kTopKChunk - 1 - (order[i] & 0xffffU));
    }
    if (last != end && (*last >> 16U) >= kInfinityBits) {  // the largest that is left out
      std::memset(code + offset, 0, kept * kEntryBytes);
      std::memcpy(code + offset, &kNotFinite, sizeof kNotFinite);
      return;
    }
    std::sort(places.begin(), places.begin() + static_cast<std::ptrdiff_t>(kept));
    std::byte* const to = code + offset;
    std::memcpy(to, places.data(), kept * sizeof(Place));
    for (std::size_t i = 0; i < kept; ++i) {
      std::memcpy(to + kept * sizeof(Place) + i * sizeof(float), &values[first + places[i]],
                  sizeof(float));
    }
  });
}

void decode_top_k(std::size_t kept_of_chunk, const std::byte* code, std::span<float> values) {
  std::ranges::fill(values, 0.0F);
  for_each_chunk(kept_of_chunk, values.size(), [&](auto first, auto size, auto kept, auto offset) {
    const std::byte* const from = code + offset;
    const auto chunk = values.subspan(first, size);
    for (std::size_t i = 0; i < kept; ++i) {
      Place place = 0;
      std::memcpy(&place, from + i * sizeof(Place), sizeof place);
      if (i == 0 && place == kNotFinite) {
        std::ranges::fill(chunk, std::numeric_limits<float>::quiet_NaN());
        break;
      }
      if (place < size) {
        std::memcpy(&chunk[place], from + kept * sizeof(Place) + i * sizeof(float), sizeof(float));
      }
    }
  });
}

std::size_t top_k8_bytes(std::size_t kept_of_chunk, std::size_t count) noexcept {
  const std::size_t kept = top_k_bytes(kept_of_chunk, count) / kEntryBytes;
  return kept * sizeof(Place) + block_code_bytes(BlockForm::Int8, kept);
}

void encode_top_k8(std::size_t kept_of_chunk, std::span<const float> values, std::byte* code) {
  std::vector<std::byte> whole(top_k_bytes(kept_of_chunk, values.size()));
  encode_top_k(kept_of_chunk, values, whole.data());
  std::vector<float> kept_values(whole.size() / kEntryBytes);
  std::size_t done = 0;
  for_each_chunk(kept_of_chunk, values.size(), [&](auto, auto, auto kept, auto offset) {
    std::memcpy(code + done * sizeof(Place), whole.data() + offset, kept * sizeof(Place));
    std::memcpy(kept_values.data() + done, whole.data() + offset + kept * sizeof(Place),
                kept * sizeof(float));
    done += kept;
  });
  encode_blocks(BlockForm::Int8, kept_values, code + done * sizeof(Place));
}

void decode_top_k8(std::size_t kept_of_chunk, const std::byte* code, std::span<float> values) {
  std::vector<std::byte> whole(top_k_bytes(kept_of_chunk, values.size()));
  std::vector<float> kept_values(whole.size() / kEntryBytes);
  decode_blocks(BlockForm::Int8, code + kept_values.size() * sizeof(Place), kept_values);
  std::size_t done = 0;
  for_each_chunk(kept_of_chunk, values.size(), [&](auto, auto, auto kept, auto offset) {
    std::memcpy(whole.data() + offset, code + done * sizeof(Place), kept * sizeof(Place));
    std::memcpy(whole.data() + offset + kept * sizeof(Place), kept_values.data() + done,
                kept * sizeof(float));
    done += kept;
  });
  decode_top_k(kept_of_chunk, whole.data(), values);
}

}  // namespace bluefog::ops
