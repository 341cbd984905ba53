#pragma once

#include <cstddef>

namespace bluefog {

/// Copies `bytes` from `from` to `to`, which do not overlap.
///
/// Unlike std::memcpy it keeps its speed: where a C library copies with `rep movsb`, a target that
/// begins a few bytes after the source within a page makes it twenty times slower on some
/// processors, and memory from malloc lies like that beside memory that begins on a page.
void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes);

/// Copies like `copy_bytes`, but with stores around this core's cache where the processor has them.
///
/// Slower to write than `copy_bytes` into warm memory. Faster where another core that shares no
/// cache with this one reads the copy: it finds the bytes in memory instead of asking this core for
/// them. The bytes are in order with later release stores when it returns.
void copy_around_cache(std::byte* to, const std::byte* from, std::size_t bytes);

}  // namespace bluefog
