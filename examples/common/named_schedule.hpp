#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "topology/schedule.hpp"

/// The topology library's families (topology/families.hpp) as the examples' `--topology` takes
/// them: by name and number of ranks, everything else being the family's default; or a file of
/// edges, as `bftopo` reads it.
namespace bluefog::examples {

/// The names that `make_schedule` knows.
[[nodiscard]] const std::vector<std::string>& schedule_names();

/// Who averages with whom in each step. @param name one of `schedule_names`, or else a file.
/// @throws InvalidArgument if `name` is neither (lists the known ones), its graph does not exist
///   for `size` ranks, or the file is not one of edges of so many ranks.
[[nodiscard]] Schedule make_schedule(std::string_view name, int size);

}  // namespace bluefog::examples
