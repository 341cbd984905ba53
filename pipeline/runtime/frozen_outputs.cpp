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

/// By what rows are looked up: they were computed by such layers, and have such a form.
std::uint64_t stamp_of(std::uint64_t digest, const RowForm& form) {
  std::vector<std::uint64_t> words{digest, static_cast<std::uint64_t>(form.dtype)};
  words.insert(words.end(), form.sizes.begin(), form.sizes.end());
  return digest_of(words);
}

std::span<std::byte> row_of(const at::Tensor& rows, std::int64_t row) {
  const auto bytes = rows.nbytes() / static_cast<std::size_t>(rows.size(0));
  auto* const first = static_cast<std::byte*>(rows.data_ptr());
  return {first + static_cast<std::size_t>(row) * bytes, bytes};
}

}  // namespace

void FrozenOutputs::Rows::add(std::int64_t place, std::int64_t sample) {
  places.push_back(place);
  samples.push_back(sample);
}

FrozenOutputs::FrozenOutputs(ActivationCache& cache, Layers& layers, int depth, int older_depth)
    : cache_(cache), layers_(layers), depth_(depth), older_depth_(older_depth) {}

void FrozenOutputs::begin_step() {
  std::vector<std::uint64_t> words;
  const auto digest_up_to = [&](int depth) {
    std::vector<std::uint64_t> own = words;
    own.push_back(static_cast<std::uint64_t>(depth));
    return digest_of(own);
  };
  for (int layer = 0; layer < depth_; ++layer) {
    if (layer == older_depth_) {
      older_digest_ = digest_up_to(layer);
    }
    for (const LayerTensor& item : layers_.tensors(layer)) {
      words.push_back(digest_of(item.tensor));
    }
  }
  digest_ = digest_up_to(depth_);
}

at::Tensor FrozenOutputs::computed(const at::Tensor& input, int begin, int end) {
  at::Tensor values = input;
  for (int layer = begin; layer < end; ++layer) {
    values = layers_.forward(layer, values);
  }
  if (values.dim() < 1 || values.size(0) != input.size(0)) {
    throw InvalidArgument(fmt::format("{}: expected an output of {} rows, found {}",
                                      layers_.describe(end - 1), input.size(0),
                                      optimizers::describe(values)));
  }
  return values.contiguous();
}

// The first outputs show the form that rows have, at the earlier depth too.
at::Tensor FrozenOutputs::first_outputs(const at::Tensor& input,
                                        std::span<const std::int64_t> samples) {
  const bool has_older = older_depth_ > 0 && older_depth_ < depth_;
  const at::Tensor older = has_older ? computed(input, 0, older_depth_) : input;
  const RowForm older_form = form_of(older);
  const std::size_t older_bytes = older.nbytes();
  at::Tensor outputs = computed(older, has_older ? older_depth_ : 0, depth_);
  form_ = form_of(outputs);
  if (has_older && older_bytes == outputs.nbytes()) {
    older_form_ = older_form;
  }
  cache_.set_row_bytes(outputs.nbytes() / samples.size());
  store(outputs, samples);
  return outputs;
}

at::Tensor FrozenOutputs::of(const at::Tensor& input, std::span<const std::int64_t> samples) {
  const torch::NoGradGuard no_grad;
  if (!form_) {
    return first_outputs(input, samples);
  }
  at::Tensor outputs = room_for(*form_, input.size(0));
  const std::uint64_t wanted = stamp_of(digest_, *form_);
  Rows missing;
  for (std::int64_t row = 0; row < input.size(0); ++row) {
    const std::int64_t sample = samples[static_cast<std::size_t>(row)];
    if (!cache_.find(sample, wanted, row_of(outputs, row))) {
      missing.add(row, sample);
    }
  }
  found_rows_ += input.size(0) - std::ssize(missing.places);
  resume(outputs, missing);
  if (missing.places.empty()) {
    return outputs;
  }
  const at::Tensor rows = torch::tensor(missing.places, at::kLong);
  const at::Tensor fresh = computed(input.index_select(0, rows), 0, depth_);
  if (form_of(fresh) != *form_) {
    // Rows of another form are in no cache, so that all of them are missing.
    return missing.samples.size() == samples.size() ? fresh : computed(input, 0, depth_);
  }
  store(fresh, missing.samples);
  return outputs.index_copy_(0, rows, fresh);
}

void FrozenOutputs::resume(at::Tensor& outputs, Rows& missing) {
  if (!older_form_ || missing.places.empty()) {
    return;
  }
  at::Tensor older = room_for(*older_form_, std::ssize(missing.places));
  const std::uint64_t wanted = stamp_of(older_digest_, *older_form_);
  Rows found;
  Rows left;
  for (std::size_t i = 0; i < missing.places.size(); ++i) {
    // What is found stands in front, without gaps.
    const bool is_there =
        cache_.find_older(missing.samples[i], wanted, row_of(older, std::ssize(found.places)));
    (is_there ? found : left).add(missing.places[i], missing.samples[i]);
  }
  if (found.places.empty()) {
    return;
  }
  const std::int64_t count = std::ssize(found.places);
  const at::Tensor resumed = computed(older.narrow(0, 0, count), older_depth_, depth_);
  store(resumed, found.samples);
  outputs.index_copy_(0, torch::tensor(found.places, at::kLong), resumed);
  resumed_rows_ += count;
  missing = std::move(left);
}

void FrozenOutputs::store(const at::Tensor& outputs, std::span<const std::int64_t> samples) {
  const std::uint64_t own = stamp_of(digest_, *form_);
  for (std::size_t row = 0; row < samples.size(); ++row) {
    cache_.store(samples[row], own, row_of(outputs, static_cast<std::int64_t>(row)));
  }
}

}  // namespace bluefog::pipeline
