#include "optimizers/algorithms/gradients/coded_gradients.hpp"

#include <torch/torch.h>

#include <algorithm>
#include <optional>

#include "optimizers/buckets/flat_state.hpp"

namespace bluefog::optimizers {

CodedGradients::CodedGradients(Context& context, std::vector<Bucket>& buckets,
                               const GradientCode& code)
    : context_(context), buckets_(buckets), compression_(code.compression) {
  for (const Bucket& bucket : buckets) {
    means_.emplace_back(context, bucket, bucket.flat_gradients(), gradient_name(bucket),
                        code.compression,
                        code.has_error_feedback ? std::optional<double>(1.0) : std::nullopt,
                        bucket.segments().size() + 1);
  }
}

// The note: the flags, then whether all that is coded is finite.
void CodedGradients::prepare(std::size_t b, std::span<const std::uint8_t> flags) {
  const bool is_finite = means_[b].encode(std::as_bytes(flags), scratch_);
  means_[b].own_note().back() = static_cast<std::byte>(is_finite ? 1 : 0);
}

bool CodedGradients::are_finite() const {
  return std::ranges::all_of(means_, [&](const CodedMean& mean) {
    for (int rank = 0; rank < context_.size(); ++rank) {
      if (mean.note_of(rank).back() == std::byte{0}) {
        return false;
      }
    }
    return true;
  });
}

void CodedGradients::finish() {
  try_decoding(context_, *compression_, "gradient_allreduce", [this] {
    for (const CodedMean& mean : means_) {
      mean.try_decoding(scratch_);
    }
  });
  const auto left = are_finite() ? CodedMean::Left::Follows : CodedMean::Left::Stays;
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    std::vector<std::uint8_t> any(buckets_[b].segments().size(), 0);
    for (int rank = 0; rank < context_.size(); ++rank) {
      const std::span flags = means_[b].note_of(rank);
      for (std::size_t i = 0; i < any.size(); ++i) {
        any[i] |= std::to_integer<std::uint8_t>(flags[i]);
      }
    }
    means_[b].finish(scratch_, any, left);
    buckets_[b].set_flags(any);
  }
}

void CodedGradients::forget() {
  for (CodedMean& mean : means_) {
    mean.forget();
  }
}

NamedTensors CodedGradients::state() const {
  std::vector<at::Tensor> left;
  for (const CodedMean& mean : means_) {
    if (mean.left().defined()) {
      left.push_back(mean.left());
    }
  }
  return named(left, "error");
}

void CodedGradients::restart() {
  for (const auto& [name, tensor] : state()) {
    tensor.zero_();
  }
}

}  // namespace bluefog::optimizers
