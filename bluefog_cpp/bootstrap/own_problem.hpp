#pragma once

#include <cstddef>
#include <exception>
#include <span>
#include <vector>

#include "bluefog_cpp/bootstrap.hpp"
#include "bluefog_cpp/deadline.hpp"

namespace bluefog {

/// Collective. Every rank's blob, by rank, where this rank has no problem of its own.
/// @param blob tells the others of the problem too, if there is one.
/// @param own what this rank could not do, or null.
/// @throws `own`, also where the others have heard of it and are gone already, perhaps with the
///   store; else as `Bootstrap::allgather`.
[[nodiscard]] std::vector<Bootstrap::Blob> allgather_unless(const std::exception_ptr& own,
                                                            Bootstrap& bootstrap,
                                                            std::span<const std::byte> blob,
                                                            Deadline deadline);

}  // namespace bluefog
