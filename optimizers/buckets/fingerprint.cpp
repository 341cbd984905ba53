#include "optimizers/buckets/fingerprint.hpp"

#include <array>
#include <bit>
#include <cstring>

// Highway compiles this file once per instruction set and chooses at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optimizers/buckets/fingerprint.cpp"
#include <hwy/foreach_target.h>
// foreach_target has to come first.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace bluefog::optimizers::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Words = std::array<std::uint64_t, 8>;

std::uint64_t stirred(std::uint64_t state, std::uint64_t word) {
  constexpr std::uint64_t kOdd = 0x9E3779B97F4A7C15U;
  return std::rotl((state ^ word) * kOdd, 29);
}

std::uint64_t joined_words(const Words& words) {
  std::uint64_t result = 0;
  for (const std::uint64_t word : words) {
    result = stirred(result, word);
  }
  return result;
}

#if HWY_TARGET == HWY_SCALAR

// Chains of products: enough of them to hide the time that one takes.
std::uint64_t fingerprint_of(const std::uint8_t* bytes, std::size_t count) {
  Words states{1, 2, 3, 4, 5, 6, 7, 8};
  Words words{};
  const auto add = [&] {
    for (std::size_t chain = 0; chain < states.size(); ++chain) {
      states[chain] = stirred(states[chain], words[chain]);
    }
  };
  for (; count >= sizeof words; count -= sizeof words, bytes += sizeof words) {
    std::memcpy(words.data(), bytes, sizeof words);
    add();
  }
  if (count > 0) {
    words = {};
    std::memcpy(words.data(), bytes, count);
    add();
  }
  return joined_words(states);
}

#else

/// The most bytes of a vector, and the chains that hide the time of a round.
constexpr std::size_t kMostBytes = sizeof(Words);
constexpr std::size_t kChains = 8;

// Chains of AES rounds, a word of the bytes in each as its key: a round is one to one, and spreads
// what came before over the whole word. Vectors of some instruction sets cannot lie in an array.
std::uint64_t fingerprint_of(const std::uint8_t* bytes, std::size_t count) {
  const hn::CappedTag<std::uint8_t, kMostBytes> d;
  const std::size_t width = hn::Lanes(d);
  auto s0 = hn::Set(d, 1);
  auto s1 = hn::Set(d, 2);
  auto s2 = hn::Set(d, 3);
  auto s3 = hn::Set(d, 4);
  auto s4 = hn::Set(d, 5);
  auto s5 = hn::Set(d, 6);
  auto s6 = hn::Set(d, 7);
  auto s7 = hn::Set(d, 8);
  const auto add = [&](const std::uint8_t* block) HWY_ATTR {
    s0 = hn::AESRound(s0, hn::LoadU(d, block));
    s1 = hn::AESRound(s1, hn::LoadU(d, block + width));
    s2 = hn::AESRound(s2, hn::LoadU(d, block + 2 * width));
    s3 = hn::AESRound(s3, hn::LoadU(d, block + 3 * width));
    s4 = hn::AESRound(s4, hn::LoadU(d, block + 4 * width));
    s5 = hn::AESRound(s5, hn::LoadU(d, block + 5 * width));
    s6 = hn::AESRound(s6, hn::LoadU(d, block + 6 * width));
    s7 = hn::AESRound(s7, hn::LoadU(d, block + 7 * width));
  };
  for (; count >= kChains * width; count -= kChains * width, bytes += kChains * width) {
    add(bytes);
  }
  if (count > 0) {
    std::array<std::uint8_t, kChains * kMostBytes> rest{};
    std::memcpy(rest.data(), bytes, count);
    add(rest.data());
  }
  const auto join = [](auto one, auto other)
                        HWY_ATTR { return hn::AESRound(hn::AESRound(one, other), other); };
  const auto joined = join(join(join(s0, s1), join(s2, s3)), join(join(s4, s5), join(s6, s7)));
  Words words{};
  std::array<std::uint8_t, kMostBytes> last{};
  hn::StoreU(joined, d, last.data());
  std::memcpy(words.data(), last.data(), sizeof words);
  return joined_words(words);
}

#endif

}  // namespace bluefog::optimizers::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bluefog::optimizers {

HWY_EXPORT(fingerprint_of);

std::uint64_t fingerprint(const void* bytes, std::size_t count) noexcept {
  return HWY_DYNAMIC_DISPATCH(fingerprint_of)(static_cast<const std::uint8_t*>(bytes), count);
}

}  // namespace bluefog::optimizers
#endif
