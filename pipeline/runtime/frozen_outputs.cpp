#include "pipeline/runtime/frozen_outputs.hpp"

#include <fmt/format.h>
#include <torch/torch.h>

#include <utility>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "optimizers/buckets/fingerprint.hpp"

namespace bluefog::pipeline {
namespace {

std::uint64_t digest_of(const std::vector<std::uint64_t>& words) {
  return optimizers::fingerprint(words.data(), words.size() * sizeof(words.front()));
}

std::uint64_t digest_of(const at::Tensor& tensor) {
  const at::Tensor values = tensor.detach().contiguous();
  return optimizers::fingerprint(values.const_data_ptr(), values.nbytes());
}

std::span<std::byte> row_of(const at::Tensor& rows, std::int64_t row) {
  const auto bytes = rows.nbytes() / static_cast<std::size_t>(rows.size(0));
  auto* const first = static_cast<std::byte*>(rows.data_ptr());
  return {first + static_cast<std::size_t>(row) * bytes, bytes};
}

}  // namespace

FrozenOutputs::FrozenOutputs(ActivationCache& cache, Layers& layers, int depth)
    : cache_(cache), layers_(layers), depth_(depth) {}

void FrozenOutputs::begin_step() {
  std::vector<std::uint64_t> words;
  for (int layer = 0; layer < depth_; ++layer) {
    for (const LayerTensor& item : layers_.tensors(layer)) {
      words.push_back(digest_of(item.tensor));
    }
  }
  words.push_back(static_cast<std::uint64_t>(depth_));
  digest_ = digest_of(words);
}

std::uint64_t FrozenOutputs::stamp() const {
  std::vector<std::uint64_t> words{digest_, static_cast<std::uint64_t>(form_->dtype)};
  words.insert(words.end(), form_->sizes.begin(), form_->sizes.end());
  return digest_of(words);
}

at::Tensor FrozenOutputs::computed(const at::Tensor& input) {
  at::Tensor values = input;
  for (int layer = 0; layer < depth_; ++layer) {
    values = layers_.forward(layer, values);
  }
  if (values.dim() < 1 || values.size(0) != input.size(0)) {
    throw InvalidArgument(fmt::format("{}: expected an output of {} rows, found {}",
                                      layers_.describe(depth_ - 1), input.size(0),
                                      optimizers::describe(values)));
  }
  return values.contiguous();
}

at::Tensor FrozenOutputs::of(const at::Tensor& input, std::span<const std::int64_t> samples) {
  const torch::NoGradGuard no_grad;
  if (!form_) {
    const at::Tensor outputs = computed(input);
    form_ = {.dtype = outputs.scalar_type(), .sizes = outputs.sizes().slice(1).vec()};
    cache_.set_row_bytes(outputs.nbytes() / samples.size());
    store(outputs, samples);
    return outputs;
  }
  std::vector<std::int64_t> sizes{input.size(0)};
  sizes.insert(sizes.end(), form_->sizes.begin(), form_->sizes.end());
  at::Tensor outputs = at::empty(sizes, form_->dtype);
  const std::uint64_t wanted = stamp();
  std::vector<std::int64_t> missing;
  std::vector<std::int64_t> missing_samples;
  for (std::int64_t row = 0; row < input.size(0); ++row) {
    const std::int64_t sample = samples[static_cast<std::size_t>(row)];
    if (!cache_.find(sample, wanted, row_of(outputs, row))) {
      missing.push_back(row);
      missing_samples.push_back(sample);
    }
  }
  found_rows_ += input.size(0) - static_cast<std::int64_t>(missing.size());
  if (missing.empty()) {
    return outputs;
  }
  const at::Tensor rows = torch::tensor(missing, at::kLong);
  const at::Tensor fresh = computed(input.index_select(0, rows));
  if (fresh.scalar_type() != form_->dtype ||
      fresh.sizes().slice(1) != at::IntArrayRef(form_->sizes)) {
    // Rows of another form are in no cache, so that all of them are missing.
    return missing.size() == samples.size() ? fresh : computed(input);
  }
  store(fresh, missing_samples);
  return outputs.index_copy_(0, rows, fresh);
}

void FrozenOutputs::store(const at::Tensor& outputs, std::span<const std::int64_t> samples) {
  const std::uint64_t own = stamp();
  for (std::size_t row = 0; row < samples.size(); ++row) {
    cache_.store(samples[row], own, row_of(outputs, static_cast<std::int64_t>(row)));
  }
}

std::int64_t FrozenOutputs::take_found_rows() { return std::exchange(found_rows_, 0); }

}  // namespace bluefog::pipeline
