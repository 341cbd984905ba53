#include "tools/bftrace/json_text.hpp"

#include <fmt/format.h>

#include "bluefog_cpp/error.hpp"

namespace bluefog::bftrace {

nlohmann::json parse_json(const std::string& path, const std::string& text) {
  constexpr int kMostLevels = 100;
  const auto check_level = [&](int level, nlohmann::json::parse_event_t, nlohmann::json&) {
    if (level > kMostLevels) {
      throw InvalidArgument(
          fmt::format("{}: expected values in at most {} levels, found more", path, kMostLevels));
    }
    return true;
  };
  return nlohmann::json::parse(text, check_level, false);
}

std::string excerpt(const nlohmann::json& value) {
  constexpr std::size_t kMostBytes = 60;
  std::string text = value.dump(-1, ' ', true);
  if (text.size() > kMostBytes) {
    text.resize(kMostBytes);
    text += "...";
  }
  return text;
}

}  // namespace bluefog::bftrace
