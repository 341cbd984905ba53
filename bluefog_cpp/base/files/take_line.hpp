#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace bluefog {

/// Takes the first line off `text`: all of it where no line ends.
[[nodiscard]] inline std::string take_line(std::string_view& text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  std::string line(text.substr(0, end));
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

}  // namespace bluefog
