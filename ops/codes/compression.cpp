#include "ops/compression.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>

#include "bluefog_cpp/error.hpp"
#include "ops/codes/block_codes.hpp"
#include "ops/codes/top_k.hpp"

namespace bluefog::ops {
namespace {

struct NamedForm {
  std::string_view name;
  BlockForm form;
};

constexpr std::array kForms{NamedForm{"bfloat16", BlockForm::BFloat16},
                            NamedForm{"float16", BlockForm::Float16},
                            NamedForm{"int8", BlockForm::Int8}, NamedForm{"int4", BlockForm::Int4},
                            NamedForm{"sign", BlockForm::Sign}};
constexpr std::string_view kTopK = "topk";
constexpr std::string_view kTopK8 = "topk8";
constexpr std::size_t kUsuallyKept = 64;

/// δ of rounding to multiples of a `levels`-th of a block's largest magnitude, which itself stays:
/// no error is larger than its value or than half a multiple, so that the worst block has all
/// others at just that half.
double contraction_of_levels(double levels, std::size_t count) {
  const auto others = static_cast<double>(std::clamp<std::size_t>(count, 1, kCodeBlock) - 1);
  constexpr double kOfRounding = 1e-6;
  return 1.0 / (1.0 + others / (4.0 * levels * levels)) - kOfRounding;
}

class BlockCompression final : public Compression {
 public:
  explicit BlockCompression(const NamedForm& named) : named_(named) {}

  [[nodiscard]] std::string name() const override { return std::string(named_.name); }
  [[nodiscard]] std::size_t bytes_of(std::size_t count) const override {
    return block_code_bytes(named_.form, count);
  }
  [[nodiscard]] double contraction(std::size_t count) const override {
    switch (named_.form) {
      case BlockForm::BFloat16:
        return 1.0 - 0x1p-16;
      case BlockForm::Float16:
        return 1.0 - 0x1p-21;
      case BlockForm::Int8:
        return contraction_of_levels(127, count);
      case BlockForm::Int4:
        return contraction_of_levels(7, count);
      case BlockForm::Sign:
        break;
    }
    constexpr double kOfRounding = 1e-6;
    return (1.0 - kOfRounding) / static_cast<double>(std::clamp<std::size_t>(count, 1, kCodeBlock));
  }
  [[nodiscard]] bool may_throw() const override { return false; }
  void encode(std::span<const float> values, std::span<std::byte> code) const override {
    encode_blocks(named_.form, values, code.data());
  }
  void decode(std::span<const std::byte> code, std::span<float> values) const override {
    decode_blocks(named_.form, code.data(), values);
  }

 private:
  NamedForm named_;
};

class TopK final : public Compression {
 public:
  explicit TopK(std::size_t kept) : kept_(kept) {}

  [[nodiscard]] std::string name() const override { return fmt::format("{}:{}", kTopK, kept_); }
  [[nodiscard]] std::size_t bytes_of(std::size_t count) const override {
    return top_k_bytes(kept_, count);
  }
  [[nodiscard]] double contraction(std::size_t /*count*/) const override {
    return static_cast<double>(kept_) / static_cast<double>(kTopKChunk);
  }
  [[nodiscard]] bool may_throw() const override { return false; }
  void encode(std::span<const float> values, std::span<std::byte> code) const override {
    encode_top_k(kept_, values, code.data());
  }
  void decode(std::span<const std::byte> code, std::span<float> values) const override {
    decode_top_k(kept_, code.data(), values);
  }

 private:
  std::size_t kept_;
};

class TopK8 final : public Compression {
 public:
  explicit TopK8(std::size_t kept) : kept_(kept) {}

  [[nodiscard]] std::string name() const override { return fmt::format("{}:{}", kTopK8, kept_); }
  [[nodiscard]] std::size_t bytes_of(std::size_t count) const override {
    return top_k8_bytes(kept_, count);
  }
  [[nodiscard]] double contraction(std::size_t /*count*/) const override {
    return static_cast<double>(kept_) / static_cast<double>(kTopKChunk) *
           contraction_of_levels(127, kCodeBlock);
  }
  [[nodiscard]] bool may_throw() const override { return false; }
  void encode(std::span<const float> values, std::span<std::byte> code) const override {
    encode_top_k8(kept_, values, code.data());
  }
  void decode(std::span<const std::byte> code, std::span<float> values) const override {
    decode_top_k8(kept_, code.data(), values);
  }

 private:
  std::size_t kept_;
};

/// Whether the name is `kind`, or has a share of its own.
bool is_of(std::string_view kind, std::string_view name) {
  return name == kind || name.starts_with(fmt::format("{}:", kind));
}

template <typename Kind>
std::shared_ptr<const Compression> top_k_named(std::string_view kind, std::string_view name) {
  if (name == kind) {
    return std::make_shared<const Kind>(kUsuallyKept);
  }
  const std::string_view digits = name.substr(kind.size() + 1);
  std::size_t kept = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), kept);
  if (error != std::errc() || end != digits.data() + digits.size() || kept < 1 ||
      kept > kTopKChunk) {
    throw InvalidArgument(
        fmt::format("compression: expected {}:K with K from 1 to {}, of so many values, found '{}'",
                    kind, kTopKChunk, name));
  }
  return std::make_shared<const Kind>(kept);
}

}  // namespace

std::vector<std::string> compression_names() {
  std::vector<std::string> names;
  for (const NamedForm& named : kForms) {
    names.emplace_back(named.name);
  }
  names.emplace_back(kTopK);
  names.emplace_back(kTopK8);
  return names;
}

std::shared_ptr<const Compression> compression_named(std::string_view name) {
  if (is_of(kTopK, name)) {
    return top_k_named<TopK>(kTopK, name);
  }
  if (is_of(kTopK8, name)) {
    return top_k_named<TopK8>(kTopK8, name);
  }
  const auto found = std::ranges::find(kForms, name, &NamedForm::name);
  if (found == kForms.end()) {
    throw InvalidArgument(
        fmt::format("compression: expected one of {}, or {}:K or {}:K, found '{}'",
                    fmt::join(compression_names(), ", "), kTopK, kTopK8, name));
  }
  return std::make_shared<const BlockCompression>(*found);
}

}  // namespace bluefog::ops
