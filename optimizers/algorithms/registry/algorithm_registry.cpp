#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <deque>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include "bluefog_cpp/base/nearest_name.hpp"
#include "bluefog_cpp/error.hpp"
#include "optimizers/algorithm_row.hpp"
#include "optimizers/algorithms/registry/algorithm_library.hpp"
#include "optimizers/algorithms/registry/built_in_rows.hpp"
#include "optimizers/algorithms/registry/row_check.hpp"

namespace bluefog::optimizers {
namespace {

char spelled(char letter) { return letter == '-' ? '_' : letter; }

bool is_same_name(std::string_view one, std::string_view other) {
  return std::ranges::equal(one, other, {}, spelled, spelled);
}

bool has_name(const AlgorithmRow& row, std::string_view name) {
  return is_same_name(row.name, name) || std::ranges::any_of(row.aliases, [&](const auto& alias) {
           return is_same_name(alias, name);
         });
}

/// Rows never move, so that names and rows may be kept.
class Registry {
 public:
  static Registry& instance() {
    static Registry registry;
    return registry;
  }

  void add(AlgorithmRow row) {
    const std::unique_lock lock(mutex_);
    check_names(row, nullptr);
    rows_.push_back({.row = std::move(row)});
  }

  void replace(AlgorithmRow row) {
    const std::unique_lock lock(mutex_);
    const AlgorithmRow* const former = find_locked(row.name);
    check_names(row, former);
    for (Entry& entry : rows_) {
      entry.is_replaced = entry.is_replaced || &entry.row == former;
    }
    rows_.push_back({.row = std::move(row)});
  }

  const AlgorithmRow* find(std::string_view name) const {
    const std::shared_lock lock(mutex_);
    return find_locked(name);
  }

  std::vector<const AlgorithmRow*> all() const {
    const std::shared_lock lock(mutex_);
    std::vector<const AlgorithmRow*> rows;
    for (const Entry& entry : rows_) {
      if (!entry.is_replaced) {
        rows.push_back(&entry.row);
      }
    }
    return rows;
  }

 private:
  struct Entry {
    AlgorithmRow row;
    bool is_replaced = false;
  };

  Registry() {
    for (const auto make_row : kBuiltInRows) {
      rows_.push_back({.row = make_row()});
    }
  }

  const AlgorithmRow* find_locked(std::string_view name) const {
    const auto found = std::ranges::find_if(
        rows_, [&](const Entry& entry) { return !entry.is_replaced && has_name(entry.row, name); });
    return found == rows_.end() ? nullptr : &found->row;
  }

  /// @param but the row whose names are free.
  void check_names(const AlgorithmRow& row, const AlgorithmRow* but) const {
    check(row.name, row.name, but);
    for (const std::string& alias : row.aliases) {
      check(row.name, alias, but);
    }
  }

  void check(std::string_view of_row, std::string_view name, const AlgorithmRow* but) const {
    if (const AlgorithmRow* taken = find_locked(name); taken != nullptr && taken != but) {
      throw InvalidArgument(
          fmt::format("register_algorithm, '{}': expected names that no algorithm has, found '{}', "
                      "which {} has",
                      of_row, name, taken->name));
    }
  }

  mutable std::shared_mutex mutex_;
  std::deque<Entry> rows_;
};

std::string why_unknown(std::string_view name) {
  std::vector<std::string_view> names;
  std::vector<std::string_view> with_aliases;
  for (const AlgorithmRow* row : algorithms()) {
    names.emplace_back(row->name);
    with_aliases.emplace_back(row->name);
    with_aliases.insert(with_aliases.end(), row->aliases.begin(), row->aliases.end());
  }
  std::string word(name);
  std::ranges::transform(word, word.begin(), spelled);
  const std::string_view nearest = nearest_name(with_aliases, word);
  return fmt::format("algorithm: expected one of {}, found '{}'{}", fmt::join(names, ", "), name,
                     nearest.empty() ? std::string() : fmt::format("; did you mean {}?", nearest));
}

std::string text_of(const AlgorithmLayout& layout) {
  return fmt::format("torch {}.{} (bytes of row, algorithm, bucket, options: {}, {}, {}, {})",
                     layout.torch_major, layout.torch_minor, layout.row, layout.algorithm,
                     layout.bucket, layout.options);
}

void check_row(const AlgorithmRow& row) {
  if (const std::string problem = why_invalid(row); !problem.empty()) {
    throw InvalidArgument(fmt::format("register_algorithm, '{}': {}", row.name, problem));
  }
}

}  // namespace

std::string_view AlgorithmName::registered(std::string_view name) {
  const AlgorithmRow* const row = find_algorithm(name);
  if (row == nullptr) {
    throw InvalidArgument(why_unknown(name));
  }
  return row->name;
}

bool AlgorithmRow::reads(std::string_view option) const {
  return std::ranges::find(options, option, &AlgorithmOption::name) != options.end();
}

std::optional<double> AlgorithmOption::default_number() const {
  return std::visit(
      [](const auto& value) -> std::optional<double> {
        if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::string>) {
          return std::nullopt;
        } else {
          return static_cast<double>(value);
        }
      },
      default_value);
}

double AlgorithmParts::number(std::string_view name) const { return number_of(options, name); }

double number_of(const DistributedOptimizerOptions& options, std::string_view name) {
  if (const auto given = options.numbers.find(name); given != options.numbers.end()) {
    return given->second;
  }
  const AlgorithmRow& row = row_of(options.algorithm);
  const auto listed = std::ranges::find(row.options, name, &AlgorithmOption::name);
  if (listed == row.options.end() || listed->is_field) {
    throw InvalidArgument(
        fmt::format("algorithm {}: expected an option that its row lists and that has no field, "
                    "found '{}'",
                    row.name, name));
  }
  return listed->default_number().value();
}

void register_algorithm(AlgorithmRow row, const AlgorithmLayout& compiled) {
  if (const AlgorithmLayout own; compiled != own) {
    throw InvalidArgument(fmt::format(
        "register_algorithm: expected a file compiled with the headers of this library and {}, "
        "found one compiled with {}",
        text_of(own), text_of(compiled)));
  }
  check_row(row);
  Registry::instance().add(std::move(row));
}

void replace_algorithm(AlgorithmRow row) {
  check_row(row);
  Registry::instance().replace(std::move(row));
}

const AlgorithmRow* find_algorithm(std::string_view name) {
  return Registry::instance().find(name);
}

const AlgorithmRow& row_of(const AlgorithmName& algorithm) {
  const AlgorithmRow* const row = find_algorithm(algorithm.text());
  if (row == nullptr) {
    throw InternalError(fmt::format("row_of: no row of '{}'", algorithm.text()));
  }
  return *row;
}

std::vector<const AlgorithmRow*> algorithms() { return Registry::instance().all(); }

}  // namespace bluefog::optimizers
