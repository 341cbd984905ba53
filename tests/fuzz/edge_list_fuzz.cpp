#include <array>
#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>

#include "bluefog_cpp/error.hpp"
#include "tests/fuzz/refusal.hpp"
#include "topology/edge_list.hpp"

using namespace bluefog;
using topology::EdgeListOptions;
using topology::WeightRule;

// The first byte says with which options the rest is read.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::array<EdgeListOptions, 4> kOptions{
      {{}, {.size = 8}, {.rule = WeightRule::Uniform}, {.rule = WeightRule::MetropolisHastings}}};
  if (size == 0) {
    return 0;
  }
  const EdgeListOptions& options = kOptions[data[0] % kOptions.size()];
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  testing::parse_or_refuse<InvalidArgument>([&] {
    std::istringstream stream(text);
    const MixingMatrix matrix = topology::read_edge_list(stream, "fuzz", options);
    testing::check(matrix.size() >= 1 && matrix.entry_count() >= 1);
    testing::check(options.size == 0 || matrix.size() == options.size);
    testing::check(matrix.plan_for(matrix.size() - 1).self_weight ==
                   matrix.weight(matrix.size() - 1, matrix.size() - 1));
    // Weights that a rule made are averages.
    if (options.rule) {
      testing::check(matrix.is_row_stochastic());
    }
  });
  return 0;
}
