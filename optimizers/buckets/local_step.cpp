#include "optimizers/local_step.hpp"

#include <fmt/format.h>
#include <torch/torch.h>

#include <unordered_map>
#include <utility>

#include "bluefog_cpp/error.hpp"

namespace bluefog::optimizers {

bool reevaluates(const torch::optim::Optimizer& optimizer, Evaluation evaluation) {
  return evaluation == Evaluation::Repeated ||
         dynamic_cast<const torch::optim::LBFGS*>(&optimizer) != nullptr;
}

LocalStep::LocalStep(torch::optim::Optimizer& optimizer, const std::vector<Bucket>& buckets,
                     Stepping stepping, Evaluation evaluation)
    : optimizer_(&optimizer),
      needs_closure_(reevaluates(optimizer, evaluation)),
      whole_(stepping == Stepping::Whole || (stepping == Stepping::Auto && needs_closure_)) {
  std::unordered_map<const void*, std::size_t> bucket_of;
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    for (const Segment& segment : buckets[b].segments()) {
      bucket_of[segment.parameter.unsafeGetTensorImpl()] = b;
    }
  }
  const auto& groups = optimizer.param_groups();
  parts_.assign(buckets.size(), Groups(groups.size()));
  expected_.resize(groups.size());
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (const at::Tensor& parameter : groups[g].params()) {
      expected_[g].push_back(parameter.unsafeGetTensorImpl());
      const auto found = bucket_of.find(parameter.unsafeGetTensorImpl());
      if (found != bucket_of.end()) {
        parts_[found->second][g].push_back(parameter);
      }
    }
  }
}

void LocalStep::operator()(const Bucket& bucket) {
  if (!whole_) {
    step_bucket(parts_[static_cast<std::size_t>(bucket.index())]);
  } else if (bucket.index() == 0) {
    step_whole();
  }
}

void LocalStep::step_bucket(Groups& part) {
  struct Exchanged {
    std::vector<torch::optim::OptimizerParamGroup>& groups;
    Groups& part;
    void swap() const {
      for (std::size_t g = 0; g < groups.size(); ++g) {
        groups[g].params().swap(part[g]);
      }
    }
    Exchanged(std::vector<torch::optim::OptimizerParamGroup>& all, Groups& some)
        : groups(all), part(some) {
      swap();
    }
    ~Exchanged() { swap(); }
  };
  const Exchanged exchanged(optimizer_->param_groups(), part);
  optimizer_->step();
}

void LocalStep::step_whole() {
  const Closure closure = std::exchange(closure_, nullptr);
  loss_ = closure ? optimizer_->step(closure) : optimizer_->step();
}

void LocalStep::check_unchanged() const {
  const auto& groups = optimizer_->param_groups();
  if (groups.size() != expected_.size()) {
    throw StateError(fmt::format(
        "expected the wrapped optimizer to have {} parameter groups as when the distributed "
        "optimizer was made, found {}; make a new distributed optimizer after adding a group",
        expected_.size(), groups.size()));
  }
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const auto& params = groups[g].params();
    bool is_same = params.size() == expected_[g].size();
    for (std::size_t i = 0; is_same && i < params.size(); ++i) {
      is_same = params[i].unsafeGetTensorImpl() == expected_[g][i];
    }
    if (!is_same) {
      throw StateError(fmt::format(
          "expected group {} of the wrapped optimizer to hold the same {} parameters as when the "
          "distributed optimizer was made, found others ({}); make a new distributed optimizer",
          g, expected_[g].size(), params.size()));
    }
  }
}

}  // namespace bluefog::optimizers
