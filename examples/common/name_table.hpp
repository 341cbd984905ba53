#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bluefog_cpp/error.hpp"

namespace bluefog::examples {

/// A value with its name on the command line; tables are arrays of these.
template <typename Kind>
using Name = std::pair<const char*, Kind>;

template <typename Table>
std::vector<std::string> names_in(const Table& table) {
  std::vector<std::string> names;
  for (const auto& [name, kind] : table) {
    names.emplace_back(name);
  }
  return names;
}

/// @param what the option, for the message.
/// @throws InvalidArgument if `name` is not in the table; lists the names that are.
template <typename Table>
auto find_in(const Table& table, std::string_view what, std::string_view name) {
  const auto found = std::find_if(table.begin(), table.end(),
                                  [&](const auto& entry) { return name == entry.first; });
  if (found == table.end()) {
    std::string message = std::string(what) + ": expected one of ";
    for (const auto& entry : table) {
      message += std::string(entry.first) + ", ";
    }
    throw InvalidArgument(message + "found '" + std::string(name) + "'");
  }
  return found->second;
}

}  // namespace bluefog::examples
