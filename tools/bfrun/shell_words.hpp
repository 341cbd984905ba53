#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace bluefog::bfrun {

/// Splits `text` into words as a POSIX shell does, without expanding anything: blanks separate,
/// '…' is literal, in "…" a backslash keeps `"`, `\`, `$` and backtick, elsewhere any character.
///
/// @throws UsageError for a quote without its end, or a backslash at the end; the message quotes
/// `text` and names `source`.
[[nodiscard]] std::vector<std::string> split_shell_words(std::string_view text,
                                                         const std::string& source);

/// Writes `words` so that a shell reads the same words again.
[[nodiscard]] std::string join_shell_words(const std::vector<std::string>& words);

}  // namespace bluefog::bfrun
