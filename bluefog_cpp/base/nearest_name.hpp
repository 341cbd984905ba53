#pragma once

#include <span>
#include <string_view>

namespace bluefog {

/// The one of `names` that `word` was probably meant to be: the one that the fewest insertions,
/// deletions and replacements of characters make of it, where these are at most a third of its
/// length. Empty where none is as near. The result lives as long as `names`' texts.
[[nodiscard]] std::string_view nearest_name(std::span<const std::string_view> names,
                                            std::string_view word);

}  // namespace bluefog
