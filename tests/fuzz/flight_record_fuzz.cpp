#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "tests/fuzz/refusal.hpp"
#include "tools/bftrace/stall.hpp"

using namespace bluefog;

// The records of some ranks, with bytes 0 between them.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::istringstream texts(std::string(reinterpret_cast<const char*>(data), size));
  testing::parse_or_refuse<InvalidArgument>([&] {
    std::vector<bftrace::FlightRecord> records;
    for (std::string text; std::getline(texts, text, '\0');) {
      records.push_back(bftrace::parse_record("fuzz", text));
    }
    testing::check(!bftrace::explain_stall(std::move(records)).empty());
  });
  return 0;
}
