#include "tools/bfrun/start/slurm.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <string>

#include "tools/bfrun/numbers.hpp"

namespace bluefog::bfrun {
namespace {

constexpr std::size_t kMostHosts = 65536;

/// The pieces of `text` between commas that stand in no brackets.
std::vector<std::string_view> split_outside_brackets(std::string_view text) {
  std::vector<std::string_view> pieces;
  std::size_t begin = 0;
  int depth = 0;
  for (std::size_t k = 0; k <= text.size(); ++k) {
    const char c = k < text.size() ? text[k] : '\0';
    depth += c == '[' ? 1 : c == ']' ? -1 : 0;
    if (k < text.size() && (c != ',' || depth != 0)) {
      continue;
    }
    pieces.push_back(text.substr(begin, k - begin));
    begin = k + 1;
  }
  return pieces;
}

/// Appends `prefix` with each number of `range`, `3` or `07-12`, as wide as its first number.
bool append_range(std::string_view prefix, std::string_view range, std::string_view suffix,
                  std::vector<std::string>& names) {
  const auto dash = range.find('-');
  const std::string_view first = range.substr(0, dash);
  const std::string_view last = dash == std::string_view::npos ? first : range.substr(dash + 1);
  const auto low = parse_int(first);
  const auto high = parse_int(last);
  if (!low || !high || *low < 0 || *high < *low ||
      names.size() + static_cast<std::size_t>(*high - *low) >= kMostHosts) {
    return false;
  }
  for (int number = *low; number <= *high; ++number) {
    names.push_back(fmt::format("{}{:0{}}{}", prefix, number, first.size(), suffix));
  }
  return true;
}

bool append_hosts(std::string_view piece, std::vector<std::string>& names) {
  const auto open = piece.find('[');
  if (open == std::string_view::npos) {
    names.emplace_back(piece);
    return !piece.empty() && piece.find(']') == std::string_view::npos;
  }
  const auto close = piece.find(']', open);
  const std::string_view suffix =
      close == std::string_view::npos ? std::string_view("[") : piece.substr(close + 1);
  if (suffix.find_first_of("[]") != std::string_view::npos) {
    return false;
  }
  return std::ranges::all_of(split_outside_brackets(piece.substr(open + 1, close - open - 1)),
                             [&](std::string_view range) {
                               return append_range(piece.substr(0, open), range, suffix, names);
                             });
}

std::string_view first_of(const Environment& environment,
                          std::initializer_list<const char*> names) {
  for (const char* const name : names) {
    const auto found = environment.find(name);
    if (found != environment.end()) {
      return found->second;
    }
  }
  return {};
}

}  // namespace

std::optional<std::vector<std::string>> expand_nodelist(std::string_view text) {
  std::vector<std::string> names;
  for (const std::string_view piece : split_outside_brackets(text)) {
    if (!append_hosts(piece, names)) {
      return std::nullopt;
    }
  }
  return names;
}

std::optional<std::vector<int>> expand_counts(std::string_view text) {
  std::vector<int> counts;
  for (const std::string_view piece : split_outside_brackets(text)) {
    const auto open = piece.find("(x");
    const bool repeats = open != std::string_view::npos;
    if (repeats && piece.back() != ')') {
      return std::nullopt;
    }
    const auto count = parse_int(piece.substr(0, open));
    const auto times =
        repeats ? parse_int(piece.substr(open + 2, piece.size() - open - 3)) : std::optional(1);
    if (!count || !times || *count < 1 || *times < 1 ||
        counts.size() + static_cast<std::size_t>(*times) > kMostHosts) {
      return std::nullopt;
    }
    counts.insert(counts.end(), static_cast<std::size_t>(*times), *count);
  }
  return counts;
}

std::optional<std::vector<HostSlots>> slurm_hosts(const Environment& environment) {
  if (first_of(environment, {"SLURM_JOB_ID", "SLURM_JOBID"}).empty()) {
    return std::nullopt;
  }
  const auto names =
      expand_nodelist(first_of(environment, {"SLURM_JOB_NODELIST", "SLURM_NODELIST"}));
  const auto counts =
      expand_counts(first_of(environment, {"SLURM_TASKS_PER_NODE", "SLURM_JOB_CPUS_PER_NODE"}));
  if (!names || !counts || names->size() != counts->size()) {
    return std::nullopt;
  }
  std::vector<HostSlots> hosts;
  for (std::size_t k = 0; k < names->size(); ++k) {
    hosts.push_back({(*names)[k], (*counts)[k]});
  }
  return hosts;
}

}  // namespace bluefog::bfrun
