#pragma once

#include <cstdint>

#include "bluefog_cpp/transport/message.hpp"

namespace bluefog {

/// A call, told from calls of other pairs.
struct CallKey {
  std::uint64_t call = 0;
  /// The one rank that makes it too, or -1 where all ranks make it.
  int partner = -1;

  /// The call of this rank that `rank` makes too, under the number `call`.
  [[nodiscard]] static CallKey of(int rank, std::uint64_t call) noexcept {
    return {.call = call, .partner = is_pair_call(call) ? rank : -1};
  }

  friend bool operator==(const CallKey&, const CallKey&) = default;
};

}  // namespace bluefog
