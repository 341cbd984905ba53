#include "examples/common/named_algorithm.hpp"

#include <array>

#include "examples/common/name_table.hpp"
#include "examples/common/named_schedule.hpp"
#include "optimizers/options.hpp"

namespace bluefog::examples {
namespace {

using optimizers::AlgorithmKind;

constexpr const char* kAtcInBackward = "atc-in-backward";

constexpr std::array kAlgorithms{
    Name<AlgorithmKind>{"atc", AlgorithmKind::AdaptThenCombine},
    Name<AlgorithmKind>{kAtcInBackward, AlgorithmKind::AdaptThenCombine},
    Name<AlgorithmKind>{"awc", AlgorithmKind::AdaptWithCombine},
    Name<AlgorithmKind>{"gradient_allreduce", AlgorithmKind::GradientAllreduce},
    Name<AlgorithmKind>{"none", AlgorithmKind::None},
    Name<AlgorithmKind>{"extra", AlgorithmKind::Extra},
    Name<AlgorithmKind>{"exact-diffusion", AlgorithmKind::ExactDiffusion},
    Name<AlgorithmKind>{"d2", AlgorithmKind::D2},
    Name<AlgorithmKind>{"gradient-tracking", AlgorithmKind::GradientTracking},
    Name<AlgorithmKind>{"push-sum", AlgorithmKind::PushSum},
    Name<AlgorithmKind>{"gossip-pga", AlgorithmKind::GossipPga},
    Name<AlgorithmKind>{"local-sgd", AlgorithmKind::LocalSgd},
    Name<AlgorithmKind>{"decent-lam", AlgorithmKind::DecentLam},
    Name<AlgorithmKind>{"qg-dsgdm", AlgorithmKind::QuasiGlobalMomentum},
    Name<AlgorithmKind>{"win-put", AlgorithmKind::WinPut},
    Name<AlgorithmKind>{"pull-get", AlgorithmKind::PullGet},
    Name<AlgorithmKind>{"async-push-sum", AlgorithmKind::AsyncPushSum},
};

}  // namespace

const std::vector<std::string>& algorithm_names() {
  static const std::vector<std::string> kNames = names_in(kAlgorithms);
  return kNames;
}

AlgorithmKind algorithm_of(std::string_view name) {
  return find_in(kAlgorithms, "algorithm", name);
}

bool brings_momentum(std::string_view algorithm) {
  const AlgorithmKind kind = algorithm_of(algorithm);
  return kind == AlgorithmKind::DecentLam || kind == AlgorithmKind::QuasiGlobalMomentum;
}

const std::vector<std::string>& topology_names() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names{std::string(kDefaultTopology)};
    names.insert(names.end(), schedule_names().begin(), schedule_names().end());
    return names;
  }();
  return kNames;
}

optimizers::DistributedOptimizerOptions options_of(const CommunicationOptions& communication,
                                                   int ranks) {
  optimizers::DistributedOptimizerOptions options;
  options.algorithm = algorithm_of(communication.algorithm);
  options.step_in_backward = communication.algorithm == kAtcInBackward;
  if (communication.topology != kDefaultTopology) {
    options.schedule = make_schedule(communication.topology, ranks);
  }
  (options.algorithm == AlgorithmKind::GossipPga ? options.global_period_rounds
                                                 : options.num_steps_per_communication) =
      communication.period_steps;
  options.momentum = communication.momentum;
  return options;
}

}  // namespace bluefog::examples
