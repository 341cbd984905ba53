#include "optimizers/checks/model_check.hpp"

#include <ATen/MemoryOverlap.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdint>
#include <unordered_set>
#include <vector>

#include "optimizers/bucket.hpp"

namespace bluefog::optimizers {
namespace {

struct Extent {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  const std::string* name = nullptr;
};

Extent extent_of(const NamedTensor& item) {
  const at::Tensor& tensor = item.tensor;
  std::int64_t last = 0;
  for (std::int64_t d = 0; d < tensor.dim(); ++d) {
    last += (tensor.size(d) - 1) * tensor.stride(d);
  }
  const auto begin = reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr());
  return {.begin = begin,
          .end = begin + static_cast<std::uintptr_t>((last + 1) * tensor.element_size()),
          .name = &item.name};
}

std::string shared_memory(const NamedTensors& parameters) {
  std::vector<Extent> extents;
  for (const NamedTensor& item : parameters) {
    if (item.tensor.numel() > 0) {
      extents.push_back(extent_of(item));
    }
  }
  std::ranges::sort(extents, {}, &Extent::begin);
  for (std::size_t i = 1; i < extents.size(); ++i) {
    if (extents[i].begin < extents[i - 1].end) {
      return fmt::format(
          "parameters '{}' and '{}': expected memory of their own, found them sharing it; to tie "
          "weights register the same tensor in both places",
          *extents[i - 1].name, *extents[i].name);
    }
  }
  return {};
}

}  // namespace

ModelParameters sort_parameters(const NamedTensors& parameters,
                                const torch::optim::Optimizer& optimizer) {
  std::unordered_set<const at::TensorImpl*> held;
  for (const auto& group : optimizer.param_groups()) {
    for (const at::Tensor& tensor : group.params()) {
      held.insert(tensor.unsafeGetTensorImpl());
    }
  }
  ModelParameters sorted;
  for (const NamedTensor& item : parameters) {
    if (held.contains(item.tensor.unsafeGetTensorImpl())) {
      (item.tensor.requires_grad() ? sorted.trained : sorted.frozen).push_back(item);
    }
  }
  return sorted;
}

std::string why_untrainable(const NamedTensors& parameters, const ModelParameters& sorted,
                            const torch::optim::Optimizer& optimizer) {
  for (const NamedTensor& item : sorted.trained) {
    if (std::string why = why_not_averaged(item.tensor); !why.empty()) {
      return fmt::format("parameter '{}': {}", item.name, why);
    }
    if (at::has_internal_overlap(item.tensor) == at::MemOverlap::Yes) {
      return fmt::format(
          "parameter '{}': expected each element to have memory of its own, found {} with strides "
          "{}; make it contiguous",
          item.name, describe(item.tensor), shape_text(item.tensor.strides()));
    }
    if (is_in_a_bucket(item.tensor)) {
      return fmt::format(
          "parameter '{}': expected it to belong to no other distributed optimizer, found one that "
          "holds it; destroy that one first",
          item.name);
    }
  }
  if (std::string why = shared_memory(sorted.trained); !why.empty()) {
    return why;
  }
  std::unordered_set<const at::TensorImpl*> known;
  for (const NamedTensor& item : parameters) {
    known.insert(item.tensor.unsafeGetTensorImpl());
  }
  const auto& groups = optimizer.param_groups();
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const auto& params = groups[g].params();
    for (std::size_t i = 0; i < params.size(); ++i) {
      if (!known.contains(params[i].unsafeGetTensorImpl())) {
        return fmt::format(
            "expected every parameter of the wrapped optimizer to be the model's, found {} at "
            "place {} of group {} that is not",
            describe(params[i]), i, g);
      }
    }
  }
  if (sorted.trained.empty()) {
    return "expected at least one parameter that requires gradients and belongs to the wrapped "
           "optimizer, found none";
  }
  return {};
}

std::string why_doubled_momentum(const AlgorithmRow& row,
                                 const torch::optim::Optimizer& optimizer) {
  if (!row.reads("momentum")) {
    return {};
  }
  const auto& groups = optimizer.param_groups();
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const auto* const sgd =
        groups[i].has_options()
            ? dynamic_cast<const torch::optim::SGDOptions*>(&groups[i].options())
            : nullptr;
    if (sgd != nullptr && sgd->momentum() > 0.0) {
      return fmt::format(
          "{} has a momentum of its own: expected an optimizer without, found SGD with {} in group "
          "{}",
          row.name, sgd->momentum(), i);
    }
  }
  return {};
}

}  // namespace bluefog::optimizers
