#include "optimizers/buckets/fingerprint.hpp"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <set>
#include <utility>
#include <vector>

namespace bluefog::optimizers {
namespace {

/// Runs a body with each instruction set that this processor has.
void with_each_target(const std::function<void()>& body) {
  for (const auto target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
}

// Its own memory of just this size: a sanitizer sees what is read behind it.
std::vector<std::uint8_t> bytes_of(std::size_t count) {
  std::vector<std::uint8_t> bytes(count);
  for (std::size_t i = 0; i < count; ++i) {
    bytes[i] = static_cast<std::uint8_t>(31 * i + i / 255);
  }
  return bytes;
}

TEST(Fingerprint, IsTheSameForTheSameBytesWhereverTheyLie) {
  with_each_target([] {
    for (const std::size_t count : {0U, 1U, 63U, 64U, 65U, 511U, 512U, 513U, 5000U}) {
      const std::vector<std::uint8_t> bytes = bytes_of(count);
      std::vector<std::uint8_t> shifted(count + 3);
      if (count > 0) {
        std::memcpy(shifted.data() + 3, bytes.data(), count);
      }
      EXPECT_EQ(fingerprint(bytes.data(), count), fingerprint(shifted.data() + 3, count)) << count;
    }
  });
}

TEST(Fingerprint, TellsEveryChangedByte) {
  with_each_target([] {
    for (const std::size_t count : {1U, 64U, 513U, 1100U}) {
      std::vector<std::uint8_t> bytes = bytes_of(count);
      std::set<std::uint64_t> found{fingerprint(bytes.data(), count)};
      for (std::uint8_t& byte : bytes) {
        byte ^= 1U;
        found.insert(fingerprint(bytes.data(), count));
        byte ^= 1U;
      }
      EXPECT_EQ(found.size(), count + 1) << count << " bytes";
    }
  });
}

// Sums and products that forget the order, or what a word had before, miss these.
TEST(Fingerprint, TellsWordsThatChangePlacesAndSignsThatTurn) {
  with_each_target([] {
    const std::size_t count = 4096;
    const std::vector<std::uint8_t> bytes = bytes_of(count);
    std::set<std::uint64_t> found{fingerprint(bytes.data(), count)};
    std::size_t changes = 1;
    for (const std::size_t distance : {4U, 8U, 16U, 64U, 128U, 512U, 1024U}) {
      std::vector<std::uint8_t> swapped = bytes;
      for (std::size_t i = 0; i < 4; ++i) {
        std::swap(swapped[i], swapped[i + distance]);
      }
      found.insert(fingerprint(swapped.data(), count));
      std::vector<std::uint8_t> turned = bytes;
      turned[3] ^= 0x80U;
      turned[3 + distance] ^= 0x80U;
      found.insert(fingerprint(turned.data(), count));
      changes += 2;
    }
    EXPECT_EQ(found.size(), changes);
  });
}

}  // namespace
}  // namespace bluefog::optimizers
