#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "bluefog_cpp/settings.hpp"

namespace bluefog::c10d_backend {

/// A group of torch.distributed, as its creator gets it from torch.
struct GroupPlace {
  int rank = 0;
  int size = 1;
  std::string name{};
  std::vector<std::int64_t> global_ranks{};
  std::chrono::milliseconds timeout{0};
};

/// The settings of the group's context: those of the environment, with the group's timeout and
/// files that no other context of the process writes.
[[nodiscard]] Settings settings_of(const GroupPlace& place);

}  // namespace bluefog::c10d_backend
