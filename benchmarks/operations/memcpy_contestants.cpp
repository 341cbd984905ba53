#include <cstddef>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/operations/contestant.hpp"
#include "bluefog_cpp/base/copy.hpp"

namespace bluefog::benchmarks {
namespace {

using Copy = void (*)(std::byte* to, const std::byte* from, std::size_t bytes);

void copy_by_the_c_library(std::byte* to, const std::byte* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);
}

Contestant contestant_of(const char* how, double memory, Copy copy) {
  return {.peer = "memcpy",
          .op = std::string("memcpy, ") + how,
          .memory = memory,
          .is_limit = true,
          .call = {},
          .copy = [copy](const BufferView& to, const BufferView& from) {
            copy(static_cast<std::byte*>(to.data), static_cast<const std::byte*>(from.data),
                 from.bytes());
            asm volatile("" : : "r"(to.data) : "memory");  // it counts although nobody reads
          }};
}

}  // namespace

std::vector<Contestant> memcpy_contestants() {
  // The target of a buffer that has none of its own size beside it counts once, with the last.
  return {contestant_of("C library", 0, copy_by_the_c_library),
          contestant_of("own, around the cache", 0, copy_around_cache),
          contestant_of("own", 1, copy_bytes)};
}

}  // namespace bluefog::benchmarks
