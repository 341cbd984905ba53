#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bluefog_cpp/context.hpp"
#include "optimizers/algorithm.hpp"
#include "optimizers/algorithm_row.hpp"
#include "optimizers/early_step.hpp"
#include "optimizers/options.hpp"
#include "optimizers/parameter.hpp"

namespace torch::optim {
class Optimizer;
}

namespace bluefog::optimizers {

/// @param early for algorithms that begin in the backward pass.
[[nodiscard]] std::unique_ptr<Algorithm> make_algorithm(const DistributedOptimizerOptions& options,
                                                        Context& context,
                                                        std::vector<Bucket>& buckets,
                                                        EarlyStep early);

/// Whether the algorithm is of this library, and not registered from outside.
[[nodiscard]] bool is_built_in(const AlgorithmRow& row);

/// Why the options cannot be used on `size` ranks, with what was expected and found; empty if they
/// can. A function of its arguments alone: ranks with equal ones come to the same verdict.
[[nodiscard]] std::string why_invalid(const DistributedOptimizerOptions& options, int size);

/// The numbers that options which `why_invalid` has nothing against leave to the algorithm.
/// @throws InvalidArgument where it finds none.
[[nodiscard]] std::vector<ChosenNumber> chosen_numbers(const DistributedOptimizerOptions& options,
                                                       int size);

/// Why the algorithm cannot train parameters of these types; empty if it can.
[[nodiscard]] std::string why_untrainable(const AlgorithmRow& row, const NamedTensors& parameters);

/// Why these parameters cannot be averaged where they are, or an empty string: they are on several
/// devices, or on one that the context does not use.
[[nodiscard]] std::string why_elsewhere(const NamedTensors& parameters, const Context& context);

/// Why the algorithm cannot step by the wrapped optimizer in the way that the options ask for;
/// empty if it can.
[[nodiscard]] std::string why_not_stepped(const DistributedOptimizerOptions& options,
                                          const torch::optim::Optimizer& optimizer);

/// True if rounds begin in the backward pass.
[[nodiscard]] bool has_gradient_hooks(const DistributedOptimizerOptions& options);

/// Why a plan that the caller made for a round may not be used, as far as this rank can see; empty
/// if it may.
/// @param before the one that the caller made for the round before, or null.
[[nodiscard]] std::string why_unfit(const DistributedOptimizerOptions& options,
                                    const NeighborPlan& plan, const NeighborPlan* before);

}  // namespace bluefog::optimizers
