#include "bluefog_cpp/transport/tcp/greeting.hpp"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "bluefog_cpp/base/equal_secrets.hpp"
#include "bluefog_cpp/base/version.hpp"
#include "bluefog_cpp/error.hpp"
#include "bluefog_cpp/transport/tcp/streams/frame.hpp"

namespace bluefog::tcp {
namespace {

void set_version(std::array<char, 32>& version) {
  library_version().copy(version.data(), version.size() - 1);
}

}  // namespace

Secret Secret::make() {
  Secret secret;
  for (auto* const half : {&secret.caller, &secret.answerer}) {
    if (::getrandom(half->data(), half->size(), 0) != static_cast<ssize_t>(half->size())) {
      throw TransportError(fmt::format("TCP transport: getrandom: {}", std::strerror(errno)));
    }
  }
  return secret;
}

std::string library_version() { return own_version() + " (tcp 1)"; }

Greeting Greeting::make(const Secret& secret, int rank, std::size_t channel) {
  Greeting greeting{
      .secret = secret.caller, .rank = rank, .channel = static_cast<std::uint32_t>(channel)};
  set_version(greeting.version);
  return greeting;
}

Answer Answer::make(const Secret& secret, Verdict verdict) {
  Answer answer{.secret = secret.answerer, .verdict = verdict};
  set_version(answer.version);
  return answer;
}

bool is_of_network(const Greeting& greeting, const Secret& secret, int size) {
  return greeting.magic == Greeting::kMagic && equal_secrets(greeting.secret, secret.caller) &&
         greeting.rank >= 0 && greeting.rank < size && greeting.channel < kChannelCount;
}

bool is_of_network(const Answer& answer, const Secret& secret) {
  return answer.magic == Greeting::kMagic && equal_secrets(answer.secret, secret.answerer);
}

std::string version_in(const std::array<char, 32>& version) {
  std::string text(version.data(), ::strnlen(version.data(), version.size()));
  std::ranges::replace_if(
      text, [](char c) { return c < 0x20 || c > 0x7e; }, '?');
  return text;
}

}  // namespace bluefog::tcp
