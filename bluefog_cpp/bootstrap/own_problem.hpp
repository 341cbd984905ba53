#pragma once

#include <cstddef>
#include <exception>
#include <span>
#include <vector>

#include "bluefog_cpp/bootstrap.hpp"
#include "bluefog_cpp/deadline.hpp"
#include "bluefog_cpp/error.hpp"
#include "bluefog_cpp/settings.hpp"

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

/// What `start()` gives. Where it fails, ranks to which settings that could not be read were to be told
/// have not come: these are what this process can say.
/// @throws InvalidArgument with these settings; else as `start`.
template <typename Start>
[[nodiscard]] auto start_with(const Settings& settings, const Start& start) {
  try {
    return start();
  } catch (const Error&) {
    if (settings.problem.empty()) {
      throw;
    }
  }
  throw InvalidArgument(settings.problem);
}

}  // namespace bluefog
