#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "bluefog_cpp/context.hpp"
#include "tests/support/values.hpp"

namespace bluefog::testing {

/// Those of `dtypes` that a run looks at: ThreadSanitizer sees who reads what when, which is the same
/// for all of them, and takes its time.
template <std::size_t kCount>
std::span<const Dtype> looked_at([[maybe_unused]] const Dtype (&dtypes)[kCount]) {
#if defined(__SANITIZE_THREAD__)
  static constexpr Dtype kOne[]{Dtype::Float32};
  return kOne;
#else
  return dtypes;
#endif
}

/// The least bytes for which ranks ask each other where their buffers are.
inline constexpr std::size_t kLeastBytes = 131'072;

/// Lengths on both sides of that, and one that does not divide.
inline std::vector<std::size_t> counts(Dtype dtype) {
  const std::size_t element = size_of(dtype);
  return {kLeastBytes / element - 1, kLeastBytes / element, 3 * kLeastBytes / element + 7};
}

/// `values` in shared memory, `shift` bytes after a block's beginning, with marks around them.
class SharedValues {
 public:
  SharedValues(Context& context, const Values& values, std::size_t shift = 0)
      : values_(values), shift_(kMark + shift) {
    const auto& bytes = values_.bytes();
    memory_ = context.allocate_shared(bytes.size() + shift_ + kMark);
    std::memset(memory_.get(), 0x5a, bytes.size() + shift_ + kMark);
    std::memcpy(data(), bytes.data(), bytes.size());
  }

  [[nodiscard]] BufferView view() const {
    return {.data = data(),
            .count = static_cast<std::int64_t>(values_.count()),
            .dtype = values_.dtype(),
            .owner = memory_};
  }
  [[nodiscard]] Values values() {
    std::memcpy(values_.bytes().data(), data(), values_.bytes().size());
    return values_;
  }
  [[nodiscard]] bool has_its_marks() {
    const auto is_mark = [](std::byte byte) { return byte == std::byte{0x5a}; };
    const std::byte* const end = data() + values_.bytes().size();
    return std::all_of(memory_.get(), data(), is_mark) && std::all_of(end, end + kMark, is_mark);
  }

 private:
  static constexpr std::size_t kMark = 64;
  [[nodiscard]] std::byte* data() const { return memory_.get() + shift_; }

  Values values_;
  std::size_t shift_;
  std::shared_ptr<std::byte> memory_;
};

}  // namespace bluefog::testing
