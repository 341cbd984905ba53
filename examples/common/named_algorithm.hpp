#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "examples/common/algorithm_options.hpp"
#include "optimizers/algorithm_name.hpp"

namespace bluefog::optimizers {
struct DistributedOptimizerOptions;
}  // namespace bluefog::optimizers

namespace bluefog::examples {

/// The names that `algorithm_of` knows: those of registered algorithms, with their aliases, and
/// atc_in_backward.
[[nodiscard]] std::vector<std::string> algorithm_names();

/// @throws InvalidArgument if `name` is unknown; lists the known ones.
[[nodiscard]] optimizers::AlgorithmName algorithm_of(std::string_view name);

/// True if the algorithm has momentum of its own, so that the local optimizer should have none.
[[nodiscard]] bool brings_momentum(std::string_view algorithm);

/// True if the algorithm takes its own schedules alone.
[[nodiscard]] bool brings_schedule(std::string_view algorithm);

/// The name for the algorithm's own default schedule.
inline constexpr std::string_view kDefaultTopology = "default";

/// `kDefaultTopology`, the names that `make_schedule` knows, and those of algorithms' own
/// schedules.
[[nodiscard]] const std::vector<std::string>& topology_names();

/// The words of the command line about the exchange between ranks.
struct CommunicationOptions {
  std::string algorithm = "atc";
  /// One of `topology_names`, or a file of edges.
  std::string topology{kDefaultTopology};
  /// One step in so many communicates.
  std::int64_t local_steps = 1;
  /// Momentum of algorithms that have one of their own.
  double momentum = 0.9;
  /// Options of the algorithm's own (`option_values`); they go before the two above.
  OptionValues values{};
};

/// The options of a distributed optimizer over `ranks` ranks.
/// @throws InvalidArgument for unknown names, or a graph that does not exist for so many ranks.
[[nodiscard]] optimizers::DistributedOptimizerOptions options_of(
    const CommunicationOptions& communication, int ranks);

}  // namespace bluefog::examples
