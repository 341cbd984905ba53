#include "examples/train_language/link_traffic.hpp"

#include <fstream>
#include <sstream>
#include <string>

namespace bluefog::examples {
namespace {

constexpr int kHeadLines = 2;
/// The place of the bytes sent among a line's numbers.
constexpr int kSentColumn = 8;

}  // namespace

std::int64_t bytes_sent_in(std::istream& counters) {
  std::int64_t total = 0;
  std::string line;
  for (int number = 0; std::getline(counters, line); ++number) {
    const std::size_t colon = line.find(':');
    if (number < kHeadLines || colon == std::string::npos) {
      continue;
    }
    std::string name;
    std::istringstream(line.substr(0, colon)) >> name;
    std::istringstream numbers(line.substr(colon + 1));
    std::int64_t value = 0;
    for (int column = 0; column <= kSentColumn; ++column) {
      numbers >> value;
    }
    total += name == "lo" ? 0 : value;
  }
  return total;
}

std::optional<std::int64_t> bytes_sent_by_host() {
  std::ifstream counters("/proc/net/dev");
  return counters ? std::optional(bytes_sent_in(counters)) : std::nullopt;
}

}  // namespace bluefog::examples
