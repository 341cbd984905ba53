#include "bluefog_cpp/base/copy.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>

// Highway compiles this file once per instruction set and chooses at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bluefog_cpp/base/copy.cpp"
#include <hwy/foreach_target.h>
// foreach_target has to come first.
#include <hwy/cache_control.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace bluefog::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Copies whole groups of four vectors. @return the number of bytes.
template <typename Store>
std::size_t copy_groups(std::uint8_t* to, const std::uint8_t* from, std::size_t bytes,
                        const Store& store) {
  const hn::ScalableTag<std::uint8_t> d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t k = 0;
  for (; k + 4 * lanes <= bytes; k += 4 * lanes) {
    const auto a = hn::LoadU(d, from + k);
    const auto b = hn::LoadU(d, from + k + lanes);
    const auto c = hn::LoadU(d, from + k + 2 * lanes);
    const auto e = hn::LoadU(d, from + k + 3 * lanes);
    store(a, d, to + k);
    store(b, d, to + k + lanes);
    store(c, d, to + k + 2 * lanes);
    store(e, d, to + k + 3 * lanes);
  }
  return k;
}

std::size_t copy_through_cache(std::uint8_t* to, const std::uint8_t* from, std::size_t bytes) {
  return copy_groups(to, from, bytes, [](auto v, auto d, auto* at) { hn::StoreU(v, d, at); });
}

std::size_t copy_streamed(std::uint8_t* to, const std::uint8_t* from, std::size_t bytes) {
  // Streaming stores want whole, aligned vectors.
  const std::size_t unit = hn::Lanes(hn::ScalableTag<std::uint8_t>());
  const std::size_t past = reinterpret_cast<std::uintptr_t>(to) % unit;
  const std::size_t first = past == 0 ? 0 : std::min(bytes, unit - past);
  std::memcpy(to, from, first);
  const std::size_t streamed = copy_groups(to + first, from + first, bytes - first,
                                           [](auto v, auto d, auto* at) { hn::Stream(v, d, at); });
  hwy::FlushStream();
  return first + streamed;
}

}  // namespace bluefog::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bluefog {

HWY_EXPORT(copy_through_cache);
HWY_EXPORT(copy_streamed);

namespace {

/// The shortest copy that is done here: a C library's own is as steady below, and starts faster.
constexpr std::size_t kLeastBytes = 2048;

/// Sanitizers do not see streaming stores.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool kIsSanitized = true;
#else
constexpr bool kIsSanitized = false;
#endif

bool is_vectorized(std::size_t bytes) { return bytes >= kLeastBytes && !kIsSanitized; }

std::uint8_t* octets(std::byte* bytes) { return reinterpret_cast<std::uint8_t*>(bytes); }
const std::uint8_t* octets(const std::byte* bytes) {
  return reinterpret_cast<const std::uint8_t*>(bytes);
}

void copy_rest(std::byte* to, const std::byte* from, std::size_t bytes, std::size_t done) {
  if (done < bytes) {
    std::memcpy(to + done, from + done, bytes - done);
  }
}

}  // namespace

void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) {
  std::size_t done = 0;
  if (is_vectorized(bytes)) {
    done = HWY_DYNAMIC_DISPATCH(copy_through_cache)(octets(to), octets(from), bytes);
  }
  copy_rest(to, from, bytes, done);
}

void copy_around_cache(std::byte* to, const std::byte* from, std::size_t bytes) {
  std::size_t done = 0;
  if (is_vectorized(bytes)) {
    done = HWY_DYNAMIC_DISPATCH(copy_streamed)(octets(to), octets(from), bytes);
  }
  copy_rest(to, from, bytes, done);
}

}  // namespace bluefog
#endif
