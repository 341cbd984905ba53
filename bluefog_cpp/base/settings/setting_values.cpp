#include "bluefog_cpp/base/settings/setting_values.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "bluefog_cpp/error.hpp"

namespace bluefog {

void refuse_value(std::string_view name, std::string_view value, std::string_view expected) {
  throw InvalidArgument(fmt::format("{}={}: expected {}", name, value, expected));
}

std::chrono::nanoseconds parse_duration(std::string_view name, std::string_view value,
                                        std::chrono::nanoseconds unit, std::string_view unit_name,
                                        double low) {
  constexpr double kHigh = 1e9;
  const auto number = parse_number<double>(value);
  if (!number || !(*number >= low) || !(*number <= kHigh)) {
    refuse_value(name, value, fmt::format("a number of {} from {} to {}", unit_name, low, kHigh));
  }
  return std::chrono::nanoseconds(std::llround(*number * static_cast<double>(unit.count())));
}

std::string lower_case(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return result;
}

bool parse_flag(std::string_view name, std::string_view value) {
  constexpr std::array<std::pair<std::string_view, bool>, 8> kWords{{{"1", true},
                                                                     {"true", true},
                                                                     {"yes", true},
                                                                     {"on", true},
                                                                     {"0", false},
                                                                     {"false", false},
                                                                     {"no", false},
                                                                     {"off", false}}};
  return parse_word(name, value, kWords, "1, true, yes or on; or 0, false, no or off");
}

LogLevel parse_log_level(std::string_view name, std::string_view value) {
  const std::string text = lower_case(value);
  for (const LogLevel level : {LogLevel::Trace, LogLevel::Debug, LogLevel::Info, LogLevel::Warning,
                               LogLevel::Error, LogLevel::Fatal}) {
    if (text == to_string(level)) {
      return level;
    }
  }
  refuse_value(name, value, "trace, debug, info, warning, error or fatal");
}

TransportChoice parse_transport(std::string_view name, std::string_view value) {
  constexpr std::array<std::pair<std::string_view, TransportChoice>, 2> kWords{
      {{"auto", TransportChoice::Auto}, {"mpi", TransportChoice::Mpi}}};
  return parse_word(name, value, kWords, "auto or mpi");
}

NetworkChoice parse_network(std::string_view name, std::string_view value) {
  constexpr std::array<std::pair<std::string_view, NetworkChoice>, 3> kWords{
      {{"auto", NetworkChoice::Auto}, {"mpi", NetworkChoice::Mpi}, {"tcp", NetworkChoice::Tcp}}};
  return parse_word(name, value, kWords, "auto, mpi or tcp");
}

std::pair<int, int> parse_ports(std::string_view name, std::string_view value) {
  constexpr int kMostPort = 65535;
  const std::size_t dash = value.find('-');
  const auto first = parse_number<int>(value.substr(0, dash));
  const auto last =
      dash == std::string_view::npos ? first : parse_number<int>(value.substr(dash + 1));
  const bool is_any = value == "0";
  if (!first || !last || (!is_any && *first < 1) || *last < *first || *last > kMostPort) {
    refuse_value(name, value, "a port or FIRST-LAST, of 1 to 65535, or 0 for any");
  }
  return {*first, *last};
}

DeviceWayChoice parse_device_way(std::string_view name, std::string_view value) {
  constexpr std::array<std::pair<std::string_view, DeviceWayChoice>, 4> kWords{
      {{"auto", DeviceWayChoice::Auto},
       {"nccl", DeviceWayChoice::Nccl},
       {"peer", DeviceWayChoice::Peer},
       {"host", DeviceWayChoice::Host}}};
  return parse_word(name, value, kWords, "auto, nccl, peer or host");
}

SynchronisationChoice parse_synchronisation(std::string_view name, std::string_view value) {
  constexpr std::array<std::pair<std::string_view, SynchronisationChoice>, 3> kWords{
      {{"auto", SynchronisationChoice::Auto},
       {"component", SynchronisationChoice::Component},
       {"neighbours", SynchronisationChoice::Neighbors}}};
  return parse_word(name, value, kWords, "auto, component or neighbours");
}

OnFailure parse_on_failure(std::string_view name, std::string_view value) {
  constexpr std::array<std::pair<std::string_view, OnFailure>, 2> kWords{
      {{"raise", OnFailure::Raise}, {"shrink", OnFailure::Shrink}}};
  return parse_word(name, value, kWords, "raise or shrink");
}

ShmCopy parse_shm_copy(std::string_view name, std::string_view value) {
  constexpr std::array<std::pair<std::string_view, ShmCopy>, 3> kWords{
      {{"auto", ShmCopy::Auto}, {"cache", ShmCopy::Cache}, {"stream", ShmCopy::Stream}}};
  return parse_word(name, value, kWords, "auto, cache or stream");
}

std::int64_t parse_chunk(std::string_view name, std::string_view value) {
  constexpr std::int64_t kLow = 4096;
  constexpr std::int64_t kHigh = 1 << 30;
  constexpr std::int64_t kStep = 64;  // a cache line: chunks then start on one
  const auto bytes = parse_number<std::int64_t>(value);
  if (!bytes || *bytes < kLow || *bytes > kHigh || *bytes % kStep != 0) {
    refuse_value(name, value, fmt::format("a multiple of {} from {} to {}", kStep, kLow, kHigh));
  }
  return *bytes;
}

}  // namespace bluefog
