#include <array>
#include <cstddef>
#include <cstdint>

// libFuzzer takes its counters from clang's instrumentation. g++ has one of its own, a call at each
// edge, which this file turns into such counters.
extern "C" void __sanitizer_cov_8bit_counters_init(std::uint8_t* begin, std::uint8_t* end);

namespace {

constexpr std::size_t kPlaces = std::size_t{1} << 15;
std::array<std::uint8_t, kPlaces> counters{};

[[gnu::constructor]] void register_counters() {
  __sanitizer_cov_8bit_counters_init(counters.data(), counters.data() + counters.size());
}

}  // namespace

// --wrap at the link puts it in the place of libFuzzer's own function, which ends the process.
extern "C" void __wrap___sanitizer_cov_trace_pc() {
  const auto caller = reinterpret_cast<std::uintptr_t>(__builtin_return_address(0));
  ++counters[(caller ^ caller >> 15) % kPlaces];
}

// g++ calls these for comparisons of floating-point numbers, which libFuzzer does not know.
extern "C" void __sanitizer_cov_trace_cmpf(float, float) {}
extern "C" void __sanitizer_cov_trace_cmpd(double, double) {}
