#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace bluefog::bftrace {

/// The JSON value of `text`, which is in the file `path`; discarded where it is none.
///
/// Values of untrusted files are nested at most 100 levels deep: each level takes a part of the
/// stack of whoever copies or prints them.
/// @throws InvalidArgument for deeper ones.
[[nodiscard]] nlohmann::json parse_json(const std::string& path, const std::string& text);

/// The begin of `value` as text, for a message.
[[nodiscard]] std::string excerpt(const nlohmann::json& value);

}  // namespace bluefog::bftrace
