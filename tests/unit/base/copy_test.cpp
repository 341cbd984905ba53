#include "bluefog_cpp/base/copy.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace bluefog {
namespace {

using Copy = void (*)(std::byte*, const std::byte*, std::size_t);

class CopyTest : public ::testing::TestWithParam<Copy> {};

TEST_P(CopyTest, EveryByteOnceAndNoneBeside) {
  constexpr std::size_t kMargin = 128;
  constexpr std::byte kUntouched{0xEE};
  for (const std::size_t bytes : {0, 1, 63, 2047, 2048, 2049, 2303, 4096, 65537, 200001}) {
    for (const std::size_t to_shift : {0, 1, 16, 33, 64}) {
      for (const std::size_t from_shift : {0, 7, 16}) {
        std::vector<std::byte> from(bytes + kMargin);
        for (std::size_t i = 0; i < from.size(); ++i) {
          from[i] = static_cast<std::byte>((i * 131 + i / 251) % 233);
        }
        std::vector<std::byte> to(bytes + 2 * kMargin, kUntouched);
        GetParam()(to.data() + to_shift, from.data() + from_shift, bytes);
        for (std::size_t i = 0; i < to.size(); ++i) {
          const bool inside = i >= to_shift && i < to_shift + bytes;
          ASSERT_EQ(to[i], inside ? from[i - to_shift + from_shift] : kUntouched)
              << bytes << " bytes, shifts " << to_shift << " and " << from_shift << ", at " << i;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Paths, CopyTest, ::testing::Values(&copy_bytes, &copy_around_cache),
                         [](const auto& test) {
                           return test.param == &copy_bytes ? "Cached" : "Streamed";
                         });

}  // namespace
}  // namespace bluefog
