#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "bluefog_cpp/buffer_view.hpp"
#include "bluefog_cpp/context.hpp"
#include "bluefog_cpp/context/context_core.hpp"

// What sums of buffers that ranks share have in common: offers, sums, receipts.
namespace bluefog::ops {

/// The next thing that such a call does.
enum class InPlaceStep : std::uint8_t {
  Exchange,  ///< the spec was filled
  Declined,  ///< messages have to do it
  Over,      ///< the result is there
};

enum class InPlaceStage : std::uint8_t { Begin, Offers, Receipts, Over };

/// The place of a buffer that is in no shared memory.
inline constexpr std::uint64_t kNowhere = std::numeric_limits<std::uint64_t>::max();

/// Shorter calls are over before the ranks would have asked each other.
inline constexpr std::size_t kLeastInPlace = std::size_t{128} << 10U;

/// Whether a call is long enough for the smallest group, and its buffer may lie in shared memory: a
/// quick look, for short calls.
[[nodiscard]] inline bool is_long_enough_in_place(const Context& context,
                                                  const BufferView& output) {
  return output.bytes() >= kLeastInPlace && output.device.kind == DeviceKind::Cpu &&
         context.core().shared_memory() != nullptr;
}

}  // namespace bluefog::ops
