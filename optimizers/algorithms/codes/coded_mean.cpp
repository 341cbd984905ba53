#include "optimizers/algorithms/codes/coded_mean.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "ops/parts.hpp"
#include "optimizers/algorithms/codes/coded_values.hpp"

namespace bluefog::optimizers {
namespace {

std::size_t count_of(const Bucket& bucket) {
  return static_cast<std::size_t>(bucket.values().count);
}

}  // namespace

CodedMean::CodedMean(Context& context, const Bucket& bucket, at::Tensor values, std::string name,
                     std::shared_ptr<const ops::Compression> compression,
                     std::optional<double> decay, std::size_t note_bytes)
    : context_(context),
      bucket_(bucket),
      values_(std::move(values)),
      name_(std::move(name) + " in " + compression->name()),
      compression_(std::move(compression)),
      decay_(decay.value_or(0.0)),
      note_bytes_(note_bytes),
      code_bytes_(compression_->bytes_of(count_of(bucket))),
      left_(decay ? bucket.make_state() : at::Tensor()) {
  check_coded(context, bucket, "compression " + compression_->name());
}

bool CodedMean::encode(std::span<const std::byte> note, Scratch& scratch) {
  scratch.values.resize(std::max(scratch.values.size(), count_of(bucket_)));
  const std::span coded(scratch.values.data(), count_of(bucket_));
  std::ranges::fill(coded, 0.0F);
  LargestMagnitude largest;
  for_each_parameter(bucket_, [&]<typename Element>(Element, std::size_t first, std::size_t count) {
    const auto* const v = values_.const_data_ptr<Element>();
    const auto* const e = left_.defined() ? left_.const_data_ptr<Element>() : nullptr;
    const auto beta = static_cast<Element>(decay_);
    for (std::size_t k = first; k < first + count; ++k) {
      coded[k] = coded_value(static_cast<double>(e == nullptr ? v[k] : beta * e[k] + v[k]));
      largest.note(coded[k]);
    }
  });
  const auto ranks = static_cast<std::size_t>(context_.size());
  if (codes_ == nullptr) {
    codes_ = std::make_shared<std::vector<std::byte>>(ranks * message_bytes());
  }
  std::ranges::copy(note, own_note().begin());
  compression_->encode(coded, own_message().subspan(note_bytes_));
  return largest.is_finite();
}

std::span<std::byte> CodedMean::own_message() {
  return std::span(*codes_).subspan(static_cast<std::size_t>(context_.rank()) * message_bytes(),
                                    message_bytes());
}

std::span<std::byte> CodedMean::own_note() { return own_message().first(note_bytes_); }

Work CodedMean::send() {
  std::vector<BufferView> all(static_cast<std::size_t>(context_.size()));
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    all[rank].data = codes_->data() + rank * message_bytes();
    all[rank].count = static_cast<std::int64_t>(message_bytes());
    all[rank].dtype = Dtype::UInt8;
    all[rank].owner = codes_;
  }
  const BufferView own = all[static_cast<std::size_t>(context_.rank())];
  return ops::allgather_parts_nonblocking(context_, own, std::move(all), {.name = name_});
}

std::span<const std::byte> CodedMean::note_of(int rank) const {
  return std::span<const std::byte>(*codes_).subspan(
      static_cast<std::size_t>(rank) * message_bytes(), note_bytes_);
}

std::span<const std::byte> CodedMean::code_of(int rank) const {
  return std::span<const std::byte>(*codes_).subspan(
      static_cast<std::size_t>(rank) * message_bytes() + note_bytes_, code_bytes_);
}

void CodedMean::try_decoding(Scratch& scratch) const {
  scratch.values.resize(std::max(scratch.values.size(), count_of(bucket_)));
  const std::span coded(scratch.values.data(), count_of(bucket_));
  for (int rank = 0; rank < context_.size(); ++rank) {
    compression_->decode(code_of(rank), coded);
  }
}

void CodedMean::finish(Scratch& scratch, std::span<const std::uint8_t> takes_part, Left left) {
  const std::size_t length = count_of(bucket_);
  scratch.values.resize(std::max(scratch.values.size(), length));
  const std::span coded(scratch.values.data(), length);
  // In float64 and by rank: the same everywhere, and equal values come out as they are.
  scratch.sum.assign(length, 0.0);
  for (int rank = 0; rank < context_.size(); ++rank) {
    compression_->decode(code_of(rank), coded);
    for (std::size_t k = 0; k < length; ++k) {
      scratch.sum[k] += static_cast<double>(coded[k]);
    }
  }
  compression_->decode(code_of(context_.rank()), coded);
  std::size_t segment = 0;
  const double ranks = context_.size();
  for_each_parameter(bucket_, [&]<typename Element>(Element, std::size_t first, std::size_t count) {
    const std::size_t mine = segment++;
    if (!takes_part.empty() && takes_part[mine] == 0) {
      return;
    }
    auto* const v = values_.data_ptr<Element>();
    auto* const e = left_.defined() && left == Left::Follows ? left_.data_ptr<Element>() : nullptr;
    const auto beta = static_cast<Element>(decay_);
    for (std::size_t k = first; k < first + count; ++k) {
      if (e != nullptr && std::isfinite(scratch.sum[k])) {
        e[k] = beta * e[k] + v[k] - static_cast<Element>(coded[k]);
      }
      v[k] = static_cast<Element>(scratch.sum[k] / ranks);
    }
  });
}

}  // namespace bluefog::optimizers
