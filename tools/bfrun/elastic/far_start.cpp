#include "tools/bfrun/elastic/far_start.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <string_view>

#include "bluefog_cpp/error.hpp"
#include "tools/bfrun/numbers.hpp"
#include "tools/bfrun/shell_words.hpp"

namespace bluefog::bfrun {
namespace {

constexpr std::string_view kMark = "bfrun-rank-1 ";

/// False where the stream ends before.
bool read_all(int descriptor, char* to, std::size_t bytes) {
  while (bytes > 0) {
    const ssize_t count = read(descriptor, to, bytes);
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count <= 0) {
      return false;
    }
    to += count;
    bytes -= static_cast<std::size_t>(count);
  }
  return true;
}

[[noreturn]] void refuse(const std::string& found) {
  throw InvalidArgument(fmt::format(
      "--exec-far-rank is for bfrun: expected a start on standard input, found {}", found));
}

std::string take_string(std::string_view& text) {
  const std::size_t end = text.find('\0');
  if (end == std::string_view::npos) {
    refuse("one that was cut off");
  }
  std::string string(text.substr(0, end));
  text.remove_prefix(end + 1);
  return string;
}

std::size_t take_count(std::string_view& text) {
  const auto count = parse_int(take_string(text));
  if (!count || *count < 0) {
    refuse("no number where one belongs");
  }
  return static_cast<std::size_t>(*count);
}

}  // namespace

std::vector<std::string> words_for(const FarHosts& far, const std::string& host) {
  std::vector<std::string> words = far.shell;
  // Nobody answers questions, and a host that is lost is to be noticed.
  words.insert(words.end(), {"-x", "-T", "-o", "BatchMode=yes"});
  if (far.silence > std::chrono::seconds(0)) {
    constexpr int kLooks = 3;
    words.insert(
        words.end(),
        {"-o", fmt::format("ServerAliveInterval={}", (far.silence.count() + kLooks - 1) / kLooks),
         "-o", fmt::format("ServerAliveCountMax={}", kLooks)});
  }
  if (far.port > 0) {
    words.insert(words.end(), {"-p", std::to_string(far.port)});
  }
  words.push_back(host);
  words.push_back("exec " + join_shell_words({far.bfrun, "--exec-far-rank"}));
  return words;
}

std::string encode(const FarStart& start) {
  std::string body;
  const auto add = [&body](std::string_view text) {
    body += text;
    body += '\0';
  };
  add(start.folder);
  add(std::to_string(start.environment.size()));
  for (const auto& [name, value] : start.environment) {
    add(name);
    add(value);
  }
  add(std::to_string(start.command.size()));
  for (const std::string& word : start.command) {
    add(word);
  }
  return fmt::format("{}{:08x}\n{}", kMark, body.size(), body);
}

FarStart read_far_start(int descriptor) {
  constexpr std::size_t kDigits = 8;
  std::array<char, kMark.size() + kDigits + 1> head{};
  if (!read_all(descriptor, head.data(), head.size())) {
    refuse("its end");
  }
  const std::string_view words(head.data(), head.size());
  std::size_t bytes = 0;
  for (const char digit : words.substr(kMark.size(), kDigits)) {
    const std::size_t at = std::string_view("0123456789abcdef").find(digit);
    bytes = at == std::string_view::npos ? kMostStartBytes + 1 : bytes * 16 + at;
  }
  if (!words.starts_with(kMark) || bytes > kMostStartBytes) {
    refuse("something else, or that of another version");
  }
  std::string body(bytes, '\0');
  if (!read_all(descriptor, body.data(), body.size())) {
    refuse("one that was cut off");
  }
  std::string_view rest = body;
  FarStart start;
  start.folder = take_string(rest);
  for (std::size_t left = take_count(rest); left > 0; --left) {
    std::string name = take_string(rest);
    start.environment[std::move(name)] = take_string(rest);
  }
  for (std::size_t left = take_count(rest); left > 0; --left) {
    start.command.push_back(take_string(rest));
  }
  return start;
}

}  // namespace bluefog::bfrun
