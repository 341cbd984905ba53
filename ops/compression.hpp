#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace bluefog::ops {

/// A lossy code C of vectors of float32, whose bytes travel in the vectors' place: a sender encodes
/// x, and whoever has the bytes decodes C(x), with the same bits on every machine.
///
/// Programs may implement one of their own. Members are called from any thread, several at a time.
/// The same input gives the same bytes on every run, and C(0) = 0. What is not finite is no finite
/// number afterwards: a code of blocks makes all of the block NaN or infinite.
class Compression {
 public:
  Compression() = default;
  Compression(const Compression&) = delete;
  Compression& operator=(const Compression&) = delete;
  virtual ~Compression() = default;

  /// The name in options and messages. Codes of one name are the same code.
  [[nodiscard]] virtual std::string name() const = 0;

  /// The length of the code of `count` values, in bytes, whatever the values are.
  [[nodiscard]] virtual std::size_t bytes_of(std::size_t count) const = 0;

  /// δ with ‖x − C(x)‖² ≤ (1 − δ) ‖x‖² for all finite x of `count` values, from above 0 to 1: what
  /// coding differences again and again converges by.
  [[nodiscard]] virtual double contraction(std::size_t count) const = 0;

  /// Whether `encode` or `decode` may throw, the same on all ranks: they then decode all codes of a
  /// round before they use any, and tell each other. Costs one more `decode` of each code and an
  /// all-gather a round.
  [[nodiscard]] virtual bool may_throw() const { return true; }

  /// Writes the code of `values`. @param code `bytes_of(values.size())` bytes.
  virtual void encode(std::span<const float> values, std::span<std::byte> code) const = 0;

  /// Writes C(x). @param code `bytes_of(values.size())` bytes that `encode` wrote; others give some
  /// values, and nothing outside of `values` is written.
  virtual void decode(std::span<const std::byte> code, std::span<float> values) const = 0;
};

/// The code with this name (bits for each value, and what a block adds):
///
/// | name | C(x) | bits | δ |
/// |---|---|---|---|
/// | `bfloat16` | nearest, the largest finite one instead of infinity | 16 | 1 − 2⁻¹⁶ |
/// | `float16` | nearest multiple of a power of two for each block of 256 | 16 + 1/16 | 1 − 2⁻²¹ |
/// | `int8` | nearest of 255 multiples of max\|x\|/127, for each block of 256 | 8 + 1/8 | 0.996 |
/// | `int4` | nearest of 15 multiples of max\|x\|/7, for each block of 256 | 4 + 1/8 | 0.43 |
/// | `sign` | the mean of \|x\| with x's sign, for each block of 256 | 1 + 1/8 | 1/256 |
/// | `topk`, `topk:K` | the K largest of each 4096 (64), others 0 | 48 K / 4096 | K / 4096 |
/// | `topk8`, `topk8:K` | the same, in int8 | (24 + 1/8) K / 4096 | 0.996 K / 4096 |
///
/// Values below 2⁻¹²⁶ lose their last bits in `bfloat16`: its δ is that of vectors with a value of
/// at least 2⁻¹⁰⁰. Of equal magnitudes `topk` takes those that come first,
/// and of n values that are fewer than 4096 K n / 4096, rounded up.
/// Any thread. @throws InvalidArgument listing the names, or the limits of K (1 to 4096).
/// Sources: arXiv 1809.07599 and 1902.00340 (contractive codes, top-k), 1802.04434 (signs, with the
/// mean as 1905.10988 has it).
[[nodiscard]] std::shared_ptr<const Compression> compression_named(std::string_view name);

/// The names that `compression_named` knows, as lists in docs and messages have them.
[[nodiscard]] std::vector<std::string> compression_names();

}  // namespace bluefog::ops
