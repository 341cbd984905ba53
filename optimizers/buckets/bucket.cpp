#include "optimizers/bucket.hpp"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "bluefog_cpp/base/alignment.hpp"
#include "bluefog_cpp/error.hpp"

namespace bluefog::optimizers {
namespace {

std::int64_t aligned_count(std::int64_t count, std::int64_t element_bytes) {
  return round_up(count, static_cast<std::int64_t>(kCacheLine) / element_bytes);
}

/// The owner of a parameter's memory in a bucket: keeps the bucket's tensor, and knows the bucket.
struct Place {
  at::Tensor flat;
  std::weak_ptr<const int> bucket;
};

void delete_place(void* place) { delete static_cast<Place*>(place); }

std::string name_of_bucket(int index, const std::vector<Segment>& segments) {
  if (segments.size() == 1) {
    return fmt::format("bucket {} ({})", index, segments.front().name);
  }
  return fmt::format("bucket {} ({} to {})", index, segments.front().name, segments.back().name);
}

}  // namespace

bool is_in_a_bucket(const at::Tensor& parameter) {
  if (!parameter.has_storage()) {
    return false;
  }
  const Place* const place = parameter.storage().data_ptr().cast_context<Place>(&delete_place);
  return place != nullptr && !place->bucket.expired();
}

Bucket::Bucket(int index, const NamedTensors& parameters, MakeZeros zeros)
    : presence_(std::make_shared<const int>(index)), index_(index), zeros_(std::move(zeros)) {
  const torch::NoGradGuard no_grad;
  for (const auto& [name, tensor] : parameters) {
    Segment segment{.name = name,
                    .parameter = tensor,
                    .offset = count_,
                    .sizes = tensor.sizes().vec(),
                    .strides = tensor.is_non_overlapping_and_dense()
                                   ? tensor.strides().vec()
                                   : at::empty(tensor.sizes(), tensor.options()).strides().vec()};
    count_ += aligned_count(tensor.numel(), tensor.element_size());
    segments_.push_back(std::move(segment));
  }
  name_ = name_of_bucket(index, segments_);
  flat_ = zeros_(count_, parameters.front().tensor.options().requires_grad(false));
  values_ = view_of(flat_);
  for (Segment& segment : segments_) {
    at::Tensor place = alias(flat_, segment.offset, segment);
    place.copy_(segment.parameter);
    segment.parameter.set_data(place);
  }
}

// A storage of its own over part of `flat`, which it keeps alive.
at::Tensor Bucket::alias(const at::Tensor& flat, std::int64_t offset,
                         const Segment& segment) const {
  auto* const data = static_cast<char*>(flat.data_ptr()) + offset * flat.element_size();
  auto place = std::make_unique<Place>(Place{flat, presence_});
  return at::for_blob(data, segment.sizes)
      .strides(segment.strides)
      .context(place.release(), &delete_place)
      .options(flat.options())
      .target_device(flat.device())  // of no memory CUDA would not know where it is
      .make_tensor();
}

at::Tensor Bucket::make_state(std::int64_t extra) const {
  return zeros_(count_ + extra, flat_.options());
}

bool Bucket::is_bound(const Segment& segment) const {
  const at::Tensor& parameter = segment.parameter;
  const auto* const place =
      static_cast<const char*>(flat_.const_data_ptr()) + segment.offset * flat_.element_size();
  return parameter.layout() == at::kStrided && parameter.scalar_type() == flat_.scalar_type() &&
         parameter.sizes() == segment.sizes && parameter.strides() == segment.strides &&
         (parameter.numel() == 0 || parameter.const_data_ptr() == place);
}

bool Bucket::is_bound() const {
  return std::ranges::all_of(segments_,
                             [this](const Segment& segment) { return is_bound(segment); });
}

std::vector<std::string> Bucket::rebind() {
  const torch::NoGradGuard no_grad;
  for (const Segment& segment : segments_) {
    const at::Tensor& found = segment.parameter;
    if (found.scalar_type() != flat_.scalar_type() || found.sizes() != segment.sizes ||
        found.device() != flat_.device() || found.layout() != at::kStrided) {
      throw InvalidArgument(fmt::format(
          "parameter '{}': expected {}{} as when the distributed optimizer was made, found {}; "
          "make a new distributed optimizer after changing a parameter's dtype, shape or device",
          segment.name, name_of(values_.dtype), shape_text(segment.sizes), describe(found)));
    }
  }
  std::vector<std::string> names;
  for (Segment& segment : segments_) {
    if (!is_bound(segment)) {
      at::Tensor place = alias(flat_, segment.offset, segment);
      place.copy_(segment.parameter);
      segment.parameter.set_data(place);
      names.push_back(segment.name);
    }
  }
  return names;
}

void Bucket::note_change() const {
  for (const Segment& segment : segments_) {
    segment.parameter.unsafeGetTensorImpl()->bump_version();
  }
}

void Bucket::add_gradients() {
  const torch::NoGradGuard no_grad;
  const auto parameter_count = static_cast<std::int64_t>(segments_.size());
  flat_gradients_ = zeros_(count_ + parameter_count, flat_.options());
  gradients_ = view_of(flat_gradients_);
  gradient_tensors_.clear();
  for (const Segment& segment : segments_) {
    gradient_tensors_.push_back(alias(flat_gradients_, segment.offset, segment));
  }
  flag_tensor_ = flat_gradients_.narrow(0, count_, parameter_count);
}

void Bucket::set_flags(const std::vector<std::uint8_t>& flags) {
  for (auto begin = flags.begin(); begin != flags.end();) {
    const auto end =
        std::find_if(begin, flags.end(), [begin](auto flag) { return flag != *begin; });
    flag_tensor_.narrow(0, begin - flags.begin(), end - begin).fill_(*begin);
    begin = end;
  }
}

std::vector<std::vector<std::uint8_t>> flags_of(const std::vector<const Bucket*>& buckets) {
  if (buckets.empty()) {
    return {};
  }
  std::vector<at::Tensor> parts;
  for (const Bucket* const bucket : buckets) {
    parts.push_back(bucket->flag_tensor_.to(at::kDouble));
  }
  const at::Tensor values = at::cat(parts).cpu();
  const double* value = values.const_data_ptr<double>();
  std::vector<std::vector<std::uint8_t>> flags;
  for (const Bucket* const bucket : buckets) {
    auto& own = flags.emplace_back();
    for (std::size_t i = 0; i < bucket->segments_.size(); ++i) {
      own.push_back(*value++ > 0 ? 1 : 0);
    }
  }
  return flags;
}

void Bucket::zero_gradients() { flat_gradients_.zero_(); }

std::vector<Bucket> make_buckets(const NamedTensors& parameters, std::int64_t bucket_bytes,
                                 std::int64_t first_bucket_bytes, const MakeZeros& zeros) {
  if (bucket_bytes < 0 || first_bucket_bytes < 0) {
    throw InvalidArgument(fmt::format("bucket_bytes: expected 0 or more, found {} and {}",
                                      bucket_bytes, first_bucket_bytes));
  }
  struct Group {
    NamedTensors parameters;
    std::int64_t bytes = 0;
  };
  std::vector<Group> groups;
  std::map<at::ScalarType, std::size_t> open;
  for (auto parameter = parameters.rbegin(); parameter != parameters.rend(); ++parameter) {
    const at::Tensor& tensor = parameter->tensor;
    const std::int64_t bytes =
        aligned_count(tensor.numel(), tensor.element_size()) * tensor.element_size();
    const auto found = open.find(tensor.scalar_type());
    const auto has_room = [&](std::size_t group) {
      return groups[group].bytes + bytes <= (group == 0 ? first_bucket_bytes : bucket_bytes);
    };
    if (found == open.end() || !has_room(found->second)) {
      open[tensor.scalar_type()] = groups.size();
      groups.emplace_back();
    }
    Group& group = groups[open[tensor.scalar_type()]];
    group.parameters.push_back(*parameter);
    group.bytes += bytes;
  }
  std::vector<Bucket> buckets;
  buckets.reserve(groups.size());
  for (const Group& group : groups) {
    buckets.emplace_back(static_cast<int>(buckets.size()), group.parameters, zeros);
  }
  return buckets;
}

}  // namespace bluefog::optimizers
