#include "bluefog_cpp/bootstrap.hpp"

#include <fmt/format.h>

#include "bluefog_cpp/error.hpp"

namespace bluefog {

Bootstrap::Regrouped Bootstrap::regroup(WhyGone /*why_gone*/, Deadline /*deadline*/,
                                        bool /*admits*/) {
  throw UnsupportedError(
      fmt::format("rank {}, shrink: expected ranks that can go on without one of them, found a "
                  "start by '{}': {}",
                  rank(), name(), regroup_obstacle()));
}

}  // namespace bluefog
