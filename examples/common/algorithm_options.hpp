#pragma once

#include <functional>
#include <map>
#include <string>
#include <variant>
#include <vector>

namespace bluefog::optimizers {
struct DistributedOptimizerOptions;
}  // namespace bluefog::optimizers

/// Options that algorithms have of their own, as command lines give them and rows check them.
namespace bluefog::examples {

/// Values by the options' names; a switch is 0 or 1, and what is no number a text.
using OptionValues = std::map<std::string, std::variant<double, std::string>, std::less<>>;

/// The values of `words`, each `NAME=VALUE` with an option that at least one of `algorithms` lists
/// in its row. Hyphens and underscores mean the same in names.
/// @param algorithms names that `algorithm_of` knows.
/// @throws InvalidArgument naming the word, and the options with their bounds and defaults.
[[nodiscard]] OptionValues option_values(const std::vector<std::string>& words,
                                         const std::vector<std::string>& algorithms);

/// Why `option_values` refuses `words`; empty where it does not.
[[nodiscard]] std::string why_no_options(const std::vector<std::string>& words,
                                         const std::vector<std::string>& algorithms);

/// Gives `options` those of `values` that its algorithm's row lists.
void set_values(const OptionValues& values, optimizers::DistributedOptimizerOptions& options);

}  // namespace bluefog::examples
