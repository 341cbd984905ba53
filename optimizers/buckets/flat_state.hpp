#pragma once

#include <string_view>
#include <vector>

#include "optimizers/bucket.hpp"
#include "optimizers/parameter.hpp"

namespace torch::serialize {
class InputArchive;
class OutputArchive;
}  // namespace torch::serialize

namespace bluefog::optimizers {

/// `Bucket::make_state` of every bucket.
[[nodiscard]] std::vector<at::Tensor> make_states(const std::vector<Bucket>& buckets,
                                                  std::int64_t extra = 0);

/// `view_of` each.
[[nodiscard]] std::vector<BufferView> views_of(const std::vector<at::Tensor>& tensors);

/// "`what` of bucket 0", …
[[nodiscard]] NamedTensors named(const std::vector<at::Tensor>& tensors, std::string_view what);

void zero(const std::vector<at::Tensor>& tensors);

/// Copies the buckets' parameters into `places`.
void keep_values(const std::vector<Bucket>& buckets, const std::vector<at::Tensor>& places);

/// Writes an algorithm's state.
void save_state(torch::serialize::OutputArchive& archive, const NamedTensors& state);

/// Reads the tensors of the names of `state` that `save_state` wrote; those that are missing are
/// left out.
[[nodiscard]] NamedTensors read_state(torch::serialize::InputArchive& archive,
                                      const NamedTensors& state);

/// @throws InvalidArgument naming the first tensor of `state` that is missing among the saved ones,
///   or has another size or dtype there (as with another graph or `bucket_bytes`).
void check_state(const NamedTensors& saved, const NamedTensors& state);

/// Copies saved tensors, which `check_state` has passed, into those of the same names.
void set_state(const NamedTensors& saved, const NamedTensors& state);

}  // namespace bluefog::optimizers
