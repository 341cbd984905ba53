#include "tools/bfrun/start/hosts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <fstream>
#include <map>
#include <numeric>
#include <sstream>

#include "bluefog_cpp/base/quoted.hpp"
#include "tools/bfrun/numbers.hpp"
#include "tools/bfrun/options.hpp"

namespace bluefog::bfrun {
namespace {

constexpr int kMaxSlots = 65536;
constexpr std::size_t kMaxNameLength = 253;
constexpr std::size_t kMaxFileBytes = std::size_t{1} << 20;

/// The names that /etc/hosts gives to the machine itself.
constexpr std::array<std::string_view, 6> kLoopbackNames{
    "localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback", "localhost6", "::1"};

/// Host names mean the same in capitals.
std::string lower_case(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return lower;
}

/// Without the dot that ends a whole name in DNS.
std::string_view without_last_dot(std::string_view name) {
  if (name.size() > 1 && name.ends_with('.')) {
    name.remove_suffix(1);
  }
  return name;
}

/// A name is handed to ssh: nothing that a shell or ssh could take for something else.
bool is_host_name(std::string_view name) {
  const auto allowed = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '-' || c == '_' ||
           c == ':';
  };
  return !name.empty() && name.size() <= kMaxNameLength && name.front() != '-' &&
         std::all_of(name.begin(), name.end(), allowed);
}

int parse_slots(std::string_view text, const std::string& where, int least = 1) {
  const auto slots = parse_int(text);
  if (!slots || *slots < least || *slots > kMaxSlots) {
    throw UsageError(fmt::format("{}: expected a number of slots from {} to {}, found {}", where,
                                 least, kMaxSlots, bluefog::quoted(text)));
  }
  return *slots;
}

/// Reads `name`, `name:slots`, `[address]` or `[address]:slots`.
HostSlots parse_entry(std::string_view entry, const std::string& where, int least_slots = 1) {
  HostSlots host;
  std::string_view rest;
  if (!entry.empty() && entry.front() == '[') {
    const auto close = entry.find(']');
    if (close == std::string_view::npos) {
      throw UsageError(fmt::format("{}: missing ']'", where));
    }
    host.name = entry.substr(1, close - 1);
    rest = entry.substr(close + 1);
  } else {
    const auto colon = entry.find(':');
    host.name = entry.substr(0, colon);
    rest = colon == std::string_view::npos ? std::string_view() : entry.substr(colon);
    if (std::count(rest.begin(), rest.end(), ':') > 1) {
      throw UsageError(fmt::format("{}: write an IPv6 address as [address]:slots", where));
    }
  }
  if (!is_host_name(host.name)) {
    throw UsageError(
        fmt::format("{}: expected a host name of letters, digits, '.', '-' and '_', found {}",
                    where, bluefog::quoted(host.name)));
  }
  if (rest.empty()) {
    return host;
  }
  if (rest.front() != ':') {
    throw UsageError(fmt::format("{}: expected ':' after ']'", where));
  }
  host.slots = parse_slots(rest.substr(1), where, least_slots);
  return host;
}

void refuse_second_mention(std::map<std::string, std::string>& first_seen, const HostSlots& host,
                           const std::string& where) {
  const auto [seen, is_new] = first_seen.emplace(lower_case(without_last_dot(host.name)), where);
  if (!is_new) {
    throw UsageError(fmt::format("{}: host '{}' was given before ({}); give all its slots once",
                                 where, host.name, seen->second));
  }
}

/// Reads the words after the host: `slots=N`, and `max_slots=N`, which says nothing to us.
void parse_properties(std::istringstream& words, HostSlots& host, const std::string& where) {
  std::map<std::string, int> given;
  std::string word;
  while (words >> word) {
    const auto equals = word.find('=');
    const std::string key = word.substr(0, equals);
    if (equals == std::string::npos || (key != "slots" && key != "max_slots")) {
      throw UsageError(fmt::format("{}: expected slots=N, found {}", where, bluefog::quoted(word)));
    }
    const int slots = parse_slots(std::string_view(word).substr(equals + 1), where);
    if (!given.emplace(key, slots).second) {
      throw UsageError(fmt::format("{}: expected {} once, found it twice", where, key));
    }
  }
  if (given.contains("slots")) {
    host.slots = given["slots"];
  }
  if (given.contains("max_slots") && given["max_slots"] < host.slots) {
    throw UsageError(fmt::format("{}: expected at most max_slots={} slots, found {}", where,
                                 given["max_slots"], host.slots));
  }
}

}  // namespace

std::vector<HostSlots> parse_host_list(std::string_view text) {
  std::vector<HostSlots> hosts;
  std::map<std::string, std::string> first_seen;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view entry = text.substr(begin, end - begin);
    const std::string where =
        fmt::format("-H, entry {} {}", hosts.size() + 1, bluefog::quoted(entry));
    hosts.push_back(parse_entry(entry, where));
    refuse_second_mention(first_seen, hosts.back(), where);
    begin = end + 1;
  }
  return hosts;
}

std::vector<HostSlots> parse_hostfile(std::string_view text, const std::string& source) {
  if (text.size() > kMaxFileBytes) {
    throw UsageError(fmt::format("{}: a hosts file has at most {} bytes, found {}", source,
                                 kMaxFileBytes, text.size()));
  }
  std::vector<HostSlots> hosts;
  std::map<std::string, std::string> first_seen;
  std::istringstream lines{std::string(text)};
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string entry;
    if (!(words >> entry)) {
      continue;
    }
    const std::string where = fmt::format("{}, line {} {}", source, number, bluefog::quoted(line));
    hosts.push_back(parse_entry(entry, where));
    parse_properties(words, hosts.back(), where);
    refuse_second_mention(first_seen, hosts.back(), fmt::format("{}, line {}", source, number));
  }
  if (hosts.empty()) {
    throw UsageError(fmt::format("{}: no host in this file", source));
  }
  return hosts;
}

std::vector<HostSlots> parse_discovered_hosts(std::string_view text, const std::string& source) {
  std::vector<HostSlots> hosts;
  std::map<std::string, std::string> first_seen;
  std::istringstream lines{std::string(text)};
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    std::istringstream words(line);
    std::string entry;
    if (!(words >> entry)) {
      continue;
    }
    const std::string where = fmt::format("{}, line {} {}", source, number, bluefog::quoted(line));
    if (std::string more; words >> more) {
      throw UsageError(
          fmt::format("{}: expected HOST:SLOTS, found {} behind it", where, bluefog::quoted(more)));
    }
    const HostSlots host = parse_entry(entry, where, 0);
    refuse_second_mention(first_seen, host, fmt::format("{}, line {}", source, number));
    if (host.slots > 0) {
      hosts.push_back(host);
    }
  }
  return hosts;
}

std::vector<HostSlots> read_hostfile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxFileBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file && !file.eof()) {
    throw UsageError(fmt::format("--hostfile: cannot read '{}'", path));
  }
  text.resize(static_cast<std::size_t>(file.gcount()));
  return parse_hostfile(text, path);
}

std::vector<HostSlots> assign_ranks(const std::vector<HostSlots>& hosts, int ranks) {
  const auto add = [](long sum, const HostSlots& host) { return sum + host.slots; };
  const long slots = std::accumulate(hosts.begin(), hosts.end(), 0L, add);
  if (ranks > slots) {
    throw UsageError(fmt::format(
        "-np {} is more than the {} slots of the {} hosts given; raise the slots to allow it",
        ranks, slots, hosts.size()));
  }
  std::vector<HostSlots> used;
  for (const auto& host : hosts) {
    if (ranks == 0) {
      break;
    }
    used.push_back({host.name, std::min(host.slots, ranks)});
    ranks -= used.back().slots;
  }
  return used;
}

bool is_this_host(std::string_view name, std::string_view own_name) {
  const std::string wanted = lower_case(without_last_dot(name));
  const std::string own = lower_case(without_last_dot(own_name));
  const auto first_label = [](const std::string& full) { return full.substr(0, full.find('.')); };
  const bool is_loopback = std::ranges::find(kLoopbackNames, wanted) != kLoopbackNames.end() ||
                           wanted.starts_with("127.");
  return is_loopback || wanted == own || wanted == first_label(own);
}

bool share_first_label(const std::vector<HostSlots>& hosts, std::string_view own_name) {
  std::map<std::string, std::string> full_names;
  const auto is_other = [&](std::string_view name) {
    const std::string full = lower_case(without_last_dot(name));
    const bool is_address = full.find_first_not_of("0123456789.") == std::string::npos ||
                            full.find(':') != std::string::npos;
    if (is_address) {
      return false;
    }
    return full_names.emplace(full.substr(0, full.find('.')), full).first->second != full;
  };
  static_cast<void>(is_other(own_name));
  return std::ranges::any_of(hosts, [&](const HostSlots& host) { return is_other(host.name); });
}

}  // namespace bluefog::bfrun
