#include "tools/bftrace/flight_record.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "bluefog_cpp/base/quoted.hpp"
#include "bluefog_cpp/error.hpp"
#include "tools/bftrace/json_text.hpp"

namespace bluefog::bftrace {
namespace {

/// An integer that fits. The JSON library would take 4294967296 for 0 and 1.5 for 1.
template <typename Integer>
std::optional<Integer> integer_of(const nlohmann::json& value) {
  if (value.is_number_unsigned() && std::in_range<Integer>(value.get<std::uint64_t>())) {
    return static_cast<Integer>(value.get<std::uint64_t>());
  }
  if (value.is_number_integer() && !value.is_number_unsigned() &&
      std::in_range<Integer>(value.get<std::int64_t>())) {
    return static_cast<Integer>(value.get<std::int64_t>());
  }
  return std::nullopt;
}

/// The fields of one object of a record.
class Fields {
 public:
  Fields(const std::string& path, const nlohmann::json& object) : path_(path), object_(object) {}

  template <typename Integer>
  [[nodiscard]] Integer integer(const char* name) const {
    const nlohmann::json& value = object_.at(name);
    const std::optional<Integer> integer = integer_of<Integer>(value);
    if (!integer) {
      refuse(fmt::format(R"(an integer of {} bits as "{}", found {})", 8 * sizeof(Integer), name,
                         excerpt(value)));
    }
    return *integer;
  }

  template <typename Integer>
  [[nodiscard]] Integer integer_or(const char* name, Integer otherwise) const {
    return object_.contains(name) ? integer<Integer>(name) : otherwise;
  }

  /// The ranks of a list, none where there is no list.
  [[nodiscard]] std::vector<int> ranks(const char* name) const {
    std::vector<int> ranks;
    const nlohmann::json list = object_.value(name, nlohmann::json::array());
    if (!list.is_array()) {
      refuse(fmt::format(R"(an array as "{}", found {})", name, list.type_name()));
    }
    for (const nlohmann::json& value : list) {
      const std::optional<int> rank = integer_of<int>(value);
      if (!rank) {
        refuse(fmt::format(R"(an integer of 32 bits in "{}", found {})", name, excerpt(value)));
      }
      ranks.push_back(*rank);
    }
    return ranks;
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw InvalidArgument(fmt::format("{}: expected a flight record: {}", path_, what));
  }

  const std::string& path_;
  const nlohmann::json& object_;
};

RecordedCall parse_call(const std::string& path, const nlohmann::json& json) {
  const Fields fields(path, json);
  const bool is_window_call = json.value("window_call", false);
  std::optional<double> ended_s_ago;
  if (const auto ended = json.find("ended_s_ago"); ended != json.end()) {
    ended_s_ago = ended->get<double>();
  }
  RecordedCall call{.call = is_window_call ? 0 : fields.integer<std::uint64_t>("call"),
                    .context = fields.integer_or("context", 0),
                    .epoch = fields.integer_or("epoch", std::uint64_t{0}),
                    .partner = fields.integer_or("partner", -1),
                    .text = printable(json.at("kind").get<std::string>()),
                    .state = printable(json.at("state").get<std::string>()),
                    .begun_s_ago = json.at("begun_s_ago").get<double>(),
                    .ended_s_ago = ended_s_ago,
                    .no_message_from = fields.ranks("no_message_from"),
                    .not_taken_by = fields.ranks("not_taken_by"),
                    .is_window_call = is_window_call,
                    .what = printable(json.value("what", "")),
                    .waits_for = fields.ranks("waits_for")};
  if (json.contains("dtype")) {
    const auto count = fields.integer<std::int64_t>("count");
    call.text += fmt::format("({}[{}]", printable(json.at("dtype").get<std::string>()),
                             count < 0 ? "any" : std::to_string(count));
    if (const auto name = printable(json.at("name").get<std::string>()); !name.empty()) {
      call.text += fmt::format(", {} '{}'", is_window_call ? "window" : "name", name);
    }
    call.text += ')';
  }
  return call;
}

}  // namespace

FlightRecord parse_record(const std::string& path, const std::string& text) {
  const nlohmann::json json = parse_json(path, text);
  if (!json.is_object() || !json.contains("bluefog_flight_record")) {
    throw InvalidArgument(
        fmt::format("{}: expected a flight record (BLUEFOG_FLIGHT_RECORDER)", path));
  }
  try {
    const Fields fields(path, json);
    FlightRecord record{.rank = fields.integer<int>("rank"),
                        .size = fields.integer<int>("size"),
                        .epoch = fields.integer_or("epoch", std::uint64_t{0}),
                        .ranks = fields.ranks("ranks"),
                        .reason = printable(json.at("reason").get<std::string>())};
    if (record.size < 1 || record.rank < 0 || record.rank >= record.size) {
      throw InvalidArgument(
          fmt::format("{}: expected a flight record of one of at least 1 ranks, "
                      "found rank {} of {}",
                      path, record.rank, record.size));
    }
    if (json.contains("written_at")) {
      record.written_at = json["written_at"].get<double>();
    }
    for (const auto& call : json.at("calls")) {
      record.calls.push_back(parse_call(path, call));
    }
    return record;
  } catch (const nlohmann::json::exception& e) {
    // The library's sentence alone, without the name and number before it.
    const std::string_view whole(e.what());
    throw InvalidArgument(fmt::format("{}: expected a flight record: {}", path,
                                      whole.substr(std::min(whole.find("] ") + 2, whole.size()))));
  }
}

}  // namespace bluefog::bftrace
