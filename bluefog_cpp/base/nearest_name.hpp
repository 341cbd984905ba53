#pragma once

#include <span>
#include <string_view>

namespace bluefog {

/// The one of `names` that `word` was probably meant to be: the fewest insertions, deletions and
/// replacements of characters, at most a third of `word`'s length, turn `word` into it. Empty where
/// no name is as near. The result lives as long as `names`' texts.
[[nodiscard]] std::string_view nearest_name(std::span<const std::string_view> names,
                                            std::string_view word);

}  // namespace bluefog
