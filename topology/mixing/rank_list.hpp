#pragma once

#include <span>
#include <string_view>
#include <vector>

namespace bluefog {

/// Ranks that a caller lists, by rising rank.
/// @param call named in errors.
/// @throws InvalidArgument if one is outside 0 … size − 1 or there twice.
[[nodiscard]] std::vector<int> rising_ranks(std::string_view call, std::span<const int> ranks,
                                            int size);

/// `rising_ranks` of ranks that are lost. @throws InvalidArgument also if that is all.
[[nodiscard]] std::vector<int> lost_ranks(std::string_view call, std::span<const int> ranks,
                                          int size);

/// `rising_ranks` of ranks that stay. @throws InvalidArgument also if there is none.
[[nodiscard]] std::vector<int> kept_ranks(std::string_view call, std::span<const int> ranks,
                                          int size);

}  // namespace bluefog
