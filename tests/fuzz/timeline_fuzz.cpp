#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "tests/fuzz/refusal.hpp"
#include "tools/bftrace/merge.hpp"

using namespace bluefog;

// The files of two ranks, with a byte 0 between them.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const std::size_t end = std::min(text.find('\0'), size);
  testing::parse_or_refuse<InvalidArgument>([&] {
    std::vector<bftrace::RankTimeline> timelines{bftrace::parse_timeline("a", text.substr(0, end))};
    if (end < size) {
      timelines.push_back(bftrace::parse_timeline("b", text.substr(end + 1)));
    }
    const nlohmann::json merged = bftrace::merge_timelines(timelines);
    testing::check(merged.size() >= timelines.front().events.size());
    static_cast<void>(merged.dump());
  });
  return 0;
}
