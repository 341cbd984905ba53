#pragma once

#include <algorithm>
#include <cstddef>

// The sums and averages that other libraries leave to their users.
namespace bluefog::benchmarks {

/// x ← (x + received) · share. The pointers are known to be apart, so the loop becomes vector code.
template <typename T>
void add_and_scale(T* __restrict x, const T* __restrict received, std::size_t count, T share) {
  for (std::size_t k = 0; k < count; ++k) {
    x[k] = (x[k] + received[k]) * share;
  }
}

template <typename T>
void add(T* __restrict x, const T* __restrict received, std::size_t count) {
  for (std::size_t k = 0; k < count; ++k) {
    x[k] += received[k];
  }
}

/// sum ← a + b, each of which may be `sum` itself.
template <typename T>
void add_into(T* sum, const T* a, const T* b, std::size_t count) {
#pragma GCC ivdep
  for (std::size_t k = 0; k < count; ++k) {
    sum[k] = a[k] + b[k];
  }
}

/// x ← (x + Σ_j received_j) / (1 + d). A block of x stays in the first cache while all sources are
/// added to it.
template <typename T>
void average(T* x, const T* received, std::size_t count, std::size_t sources) {
  constexpr std::size_t kBlock = 16384 / sizeof(T);
  const T share = T{1} / static_cast<T>(sources + 1);
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    const std::size_t block = std::min(kBlock, count - begin);
    for (std::size_t j = 0; j + 1 < sources; ++j) {
      add(x + begin, received + j * count + begin, block);
    }
    add_and_scale(x + begin, received + (sources - 1) * count + begin, block, share);
  }
}

}  // namespace bluefog::benchmarks
