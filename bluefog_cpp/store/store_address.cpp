#include "bluefog_cpp/store/store_address.hpp"

#include <fmt/format.h>

#include <charconv>
#include <random>

#include "bluefog_cpp/error.hpp"

namespace bluefog::store {

namespace {

constexpr int kHighestPort = 65535;

}  // namespace

std::string StoreAddress::text() const {
  const bool is_ipv6 = host.find(':') != std::string::npos;
  return is_ipv6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

StoreAddress parse_store_address(const std::string& name, const std::string& text) {
  StoreAddress address;
  const std::size_t colon = text.rfind(':');
  if (colon != std::string::npos) {
    address.host = text.substr(0, colon);
    const char* const end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data() + colon + 1, end, address.port);
    if (error != std::errc{} || rest != end) {
      address.port = 0;
    }
  }
  const bool has_brackets =
      address.host.size() > 2 && address.host.front() == '[' && address.host.back() == ']';
  if (has_brackets) {
    address.host = address.host.substr(1, address.host.size() - 2);
  }
  const bool is_ambiguous =
      address.host.find_first_of(has_brackets ? "[]" : "[]:") != std::string::npos;
  if (address.host.empty() || is_ambiguous || address.port < 1 || address.port > kHighestPort) {
    throw InvalidArgument(
        fmt::format("{}={}: expected HOST:PORT or [IPV6]:PORT with a port from 1 to {}", name, text,
                    kHighestPort));
  }
  return address;
}

std::string draw_secret() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", device(), device(), device(), device());
}

}  // namespace bluefog::store
