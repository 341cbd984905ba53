#include "optimizers/buckets/flat_state.hpp"

#include <fmt/format.h>
#include <torch/torch.h>

#include <string_view>
#include <unordered_map>

#include "bluefog_cpp/error.hpp"

namespace bluefog::optimizers {
namespace {

using TensorsByName = std::unordered_map<std::string_view, at::Tensor>;

TensorsByName by_name(const NamedTensors& tensors) {
  TensorsByName found;
  for (const auto& [name, tensor] : tensors) {
    found.emplace(name, tensor);
  }
  return found;
}

}  // namespace

std::vector<at::Tensor> make_states(const std::vector<Bucket>& buckets, std::int64_t extra) {
  std::vector<at::Tensor> states;
  states.reserve(buckets.size());
  for (const Bucket& bucket : buckets) {
    states.push_back(bucket.make_state(extra));
  }
  return states;
}

std::vector<BufferView> views_of(const std::vector<at::Tensor>& tensors) {
  std::vector<BufferView> views;
  views.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) {
    views.push_back(view_of(tensor));
  }
  return views;
}

NamedTensors named(const std::vector<at::Tensor>& tensors, std::string_view what) {
  NamedTensors result;
  for (const at::Tensor& tensor : tensors) {
    result.push_back({fmt::format("{} of bucket {}", what, result.size()), tensor});
  }
  return result;
}

void zero(const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& tensor : tensors) {
    tensor.zero_();
  }
}

void keep_values(const std::vector<Bucket>& buckets, const std::vector<at::Tensor>& places) {
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    places[b].copy_(buckets[b].flat());
  }
}

void save_state(torch::serialize::OutputArchive& archive, const NamedTensors& state) {
  for (const auto& [name, tensor] : state) {
    archive.write(name, tensor.clone());  // not the whole memory that a view lies in
  }
}

NamedTensors read_state(torch::serialize::InputArchive& archive, const NamedTensors& state) {
  NamedTensors read;
  for (const auto& [name, tensor] : state) {
    at::Tensor value;
    if (archive.try_read(name, value)) {
      read.push_back({name, value});
    }
  }
  return read;
}

void check_state(const NamedTensors& saved, const NamedTensors& state) {
  const TensorsByName tensors = by_name(saved);
  for (const auto& [name, tensor] : state) {
    const auto found = tensors.find(name);
    if (found == tensors.end()) {
      throw InvalidArgument(fmt::format("saved state: expected '{}', found none", name));
    }
    const at::Tensor& value = found->second;
    if (value.sizes() != tensor.sizes() || value.scalar_type() != tensor.scalar_type()) {
      throw InvalidArgument(
          fmt::format("saved state: expected '{}', {}, found {}; load with the graph and the "
                      "bucket_bytes of the run that saved",
                      name, describe(tensor), describe(value)));
    }
  }
}

void set_state(const NamedTensors& saved, const NamedTensors& state) {
  const torch::NoGradGuard no_grad;
  const TensorsByName tensors = by_name(saved);
  for (const auto& [name, tensor] : state) {
    tensor.copy_(tensors.at(name));
  }
}

}  // namespace bluefog::optimizers
