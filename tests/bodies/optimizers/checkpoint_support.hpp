#pragma once

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <system_error>

#include "bluefog_cpp/error.hpp"
#include "ops/collectives.hpp"
#include "optimizers/algorithm_row.hpp"
#include "optimizers/checkpoint.hpp"
#include "tests/bodies/optimizers/support.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::testing {

/// A new folder, the same on every rank; gone when all have done with it.
class Folder {
 public:
  explicit Folder(Context& context) : context_(context) {
    path_ = std::filesystem::temp_directory_path() / "bluefog_checkpoint_XXXXXX";
    // The name is one that no rank has used before: a rank that still removes an earlier folder
    // must not meet this one.
    if (context.rank() == 0 && ::mkdtemp(path_.data()) == nullptr) {
      throw std::runtime_error("mkdtemp failed for " + path_);
    }
    ops::broadcast(context,
                   {.data = path_.data(),
                    .count = static_cast<std::int64_t>(path_.size()),
                    .dtype = Dtype::UInt8},
                   0);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    try {
      ops::barrier(context_);
    } catch (const Error&) {
      // A rank has failed, and says so itself.
    }
    if (context_.rank() == 0) {
      std::error_code ignored;
      std::filesystem::remove_all(path_, ignored);
    }
  }
  [[nodiscard]] std::string prefix() const { return path_ + "/model"; }

 private:
  Context& context_;
  std::string path_;
};

/// A model, its optimizer, and what it learns.
struct Training {
  Training(Context& context, optimizers::AlgorithmName kind, std::uint64_t seed)
      : problem(LeastSquares::of_rank(context.rank())),
        point(seed),
        adam(point.parameters(), torch::optim::AdamOptions(0.05)),
        optimizer(context.shared_from_this(), adam, point, options_of(context, kind)) {}

  static optimizers::DistributedOptimizerOptions options_of(const Context& context,
                                                            optimizers::AlgorithmName kind) {
    optimizers::DistributedOptimizerOptions options;
    options.algorithm = kind;
    if (kind == optimizers::AlgorithmName::PushSum) {
      options.schedule = topology::static_schedule(unbalanced_graph(context.size()));
    } else if (kind != optimizers::AlgorithmName::Extra &&
               kind != optimizers::AlgorithmName::ExactDiffusion &&
               kind != optimizers::AlgorithmName::D2 && kind != optimizers::AlgorithmName::Ceca &&
               kind != optimizers::AlgorithmName::PowerGossip) {  // their default is what they need
      options.schedule = topology::one_peer_exponential(context.size());
    }
    if (optimizers::row_of(kind).reads("momentum")) {
      options.momentum = 0.5;  // as much as DecentLaM bears on that schedule
    }
    options.bucket_bytes = 32;
    return options;
  }
  void steps(int count) {
    for (int i = 0; i < count; ++i) {
      train(optimizer, point, problem);
    }
  }

  LeastSquares problem;
  Point point;
  torch::optim::Adam adam;
  optimizers::DistributedOptimizer optimizer;
};

}  // namespace bluefog::testing
