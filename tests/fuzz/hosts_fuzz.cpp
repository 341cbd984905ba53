#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string_view>
#include <vector>

#include "tests/fuzz/refusal.hpp"
#include "tools/bfrun/options.hpp"
#include "tools/bfrun/start/hosts.hpp"

using namespace bluefog;
using bfrun::HostSlots;

namespace {

int slots_of(const std::vector<HostSlots>& hosts) {
  return std::accumulate(hosts.begin(), hosts.end(), 0,
                         [](int sum, const HostSlots& host) { return sum + host.slots; });
}

void check_hosts(const std::vector<HostSlots>& hosts) {
  testing::check(!hosts.empty() && !hosts.front().name.empty());
  testing::check(slots_of(bfrun::assign_ranks(hosts, 1)) == 1);
}

}  // namespace

// The same bytes as a hosts file and as the words of -H.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  testing::parse_or_refuse<bfrun::UsageError>(
      [&] { check_hosts(bfrun::parse_hostfile(text, "fuzz")); });
  testing::parse_or_refuse<bfrun::UsageError>([&] { check_hosts(bfrun::parse_host_list(text)); });
  return 0;
}
