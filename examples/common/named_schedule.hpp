#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "topology/schedule.hpp"

namespace bluefog::examples {

/// The names that `make_schedule` knows.
[[nodiscard]] const std::vector<std::string>& schedule_names();

/// Who averages with whom in each step, by the name that the examples' `--topology` takes.
///
/// | name                    | schedule                                              |
/// |-------------------------|-------------------------------------------------------|
/// | exponential             | static exponential graph                              |
/// | symmetric-exponential   | powers of 4 in both directions                        |
/// | ring, ring-left         | both neighbours, or only the next lower one           |
/// | mesh, torus             | two-dimensional grid, without and with wrap-around    |
/// | star, full, hypercube   | as they say                                           |
/// | one-peer-exponential    | one peer a step, at distance 1, 2, 4, …               |
/// | one-peer-hypercube      | one peer a step, at XOR 1, 2, 4, …                    |
/// | random-matching         | random pairs, drawn alike on all ranks                |
/// | one-peer-ring           | one neighbour of the ring a step, in turn             |
///
/// @throws InvalidArgument if `name` is unknown (lists the known ones) or its graph does not exist
///   for `size` ranks.
[[nodiscard]] Schedule make_schedule(std::string_view name, int size);

}  // namespace bluefog::examples
