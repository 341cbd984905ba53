#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace bluefog::examples {

/// Windows of bytes, int64 [count, length], and the bytes that follow each of theirs.
struct Windows {
  at::Tensor bytes;      ///< in which each place is scored
  at::Tensor following;  ///< those that are to be foretold
};

/// A text of which a rank has its share to train on; the last tenth is to judge by.
class ByteText {
 public:
  /// @param length of windows.
  /// @throws InvalidArgument for a text that is too short for one window a rank.
  ByteText(const std::string& text, std::int64_t length, int rank, int ranks);

  /// Windows of this rank's share, whose places depend on the seed alone.
  [[nodiscard]] Windows batch(std::int64_t count, std::uint64_t seed) const;
  /// All of the text that is held back but for a rest, in batches of `count`.
  [[nodiscard]] std::vector<Windows> test_batches(std::int64_t count) const;

 private:
  [[nodiscard]] Windows at_places(const at::Tensor& data, const at::Tensor& places) const;

  std::int64_t length_;
  at::Tensor own_;   ///< uint8
  at::Tensor test_;  ///< uint8
};

}  // namespace bluefog::examples
