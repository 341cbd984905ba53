#include "optimizers/algorithms/codes/coded_values.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "bluefog_cpp/dtype.hpp"
#include "bluefog_cpp/error.hpp"

namespace bluefog::optimizers {

void subtract(const Bucket& bucket, const at::Tensor& copy, std::span<float> to) {
  std::size_t end = 0;
  for_each_parameter(bucket, [&]<typename Element>(Element, std::size_t first, std::size_t count) {
    const auto* const x = bucket.flat().const_data_ptr<Element>();
    const auto* const told = copy.const_data_ptr<Element>();
    std::ranges::fill(to.subspan(end, first - end), 0.0F);
    end = first + count;
    for (std::size_t k = first; k < end; ++k) {
      to[k] = coded_value(static_cast<double>(x[k]) - static_cast<double>(told[k]));
    }
  });
  std::ranges::fill(to.subspan(end), 0.0F);
}

std::size_t raw_bytes(const Bucket& bucket) { return bucket.values().bytes(); }

bool take_raw(const Bucket& bucket, std::span<const std::byte> raw, const at::Tensor& copy) {
  bool is_finite = true;
  for_each_parameter(bucket, [&]<typename Element>(Element, std::size_t first, std::size_t count) {
    auto* const to = copy.data_ptr<Element>() + first;
    std::memcpy(to, raw.data() + first * sizeof(Element), count * sizeof(Element));
    is_finite =
        is_finite && std::all_of(to, to + count, [](Element x) { return std::isfinite(x); });
  });
  return is_finite;
}

std::uint64_t number_of_values(const Bucket& bucket, const at::Tensor& values, std::uint64_t seed) {
  constexpr std::uint64_t kFactor = 0x9e3779b97f4a7c15U;
  std::uint64_t number = seed ^ kFactor;
  const auto take = [&number](std::uint64_t word) {
    number = (number ^ word) * kFactor;
    number ^= number >> 29U;
  };
  for_each_parameter(bucket, [&]<typename Element>(Element, std::size_t first, std::size_t count) {
    const auto* const from =
        reinterpret_cast<const std::byte*>(values.const_data_ptr<Element>() + first);
    const std::size_t bytes = count * sizeof(Element);
    std::uint64_t word = 0;
    std::size_t at = 0;
    for (; at + sizeof word <= bytes; at += sizeof word) {
      std::memcpy(&word, from + at, sizeof word);
      take(word);
    }
    word = 0;
    std::memcpy(&word, from + at, bytes - at);
    take(word ^ (static_cast<std::uint64_t>(count) << 40U));
  });
  return number;
}

void check_coded(const Context& context, const Bucket& bucket, std::string_view code) {
  const BufferView values = bucket.values();
  if (values.device.kind != DeviceKind::Cpu) {
    throw UnsupportedError(
        fmt::format("rank {}, {}: expected parameters on the CPU, where codes are made, found {} "
                    "on a device",
                    context.rank(), code, bucket.name()));
  }
  if (values.dtype != Dtype::Float32 && values.dtype != Dtype::Float64) {
    throw UnsupportedError(fmt::format(
        "rank {}, {}: expected parameters of float32 or float64, because what codes leave adds up, "
        "found {} of {}",
        context.rank(), code, bucket.name(), name_of(values.dtype)));
  }
}

}  // namespace bluefog::optimizers
