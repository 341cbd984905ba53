#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bluefog_cpp/base/unique_fd.hpp"
#include "bluefog_cpp/bootstrap.hpp"
#include "bluefog_cpp/deadline.hpp"
#include "bluefog_cpp/transport/shm/shared_region.hpp"

namespace bluefog::shm {

/// One rank of the host, this one included.
struct Peer {
  int rank = 0;
  std::shared_ptr<SharedRegion> region{};
  /// Stays open as long as the peer's process lives; none between threads.
  UniqueFd socket{};
};

/// The regions of the ranks of this host.
struct HostRegions {
  /// Rising by rank. Empty where this rank is alone on its host, or something went wrong.
  std::vector<Peer> peers{};
  /// Index of this rank.
  std::size_t own = 0;
  /// The error of this rank, empty where there was none.
  std::string error{};
};

/// Collective over all ranks of `bootstrap`: each shows its region to the other ranks of its host
/// and maps theirs. Never throws for a reason of one rank alone: all take part to the end.
/// @param host_ids every rank's host identity.
/// @param make_region makes this rank's region; called where it is not alone on its host.
[[nodiscard]] HostRegions share_regions(
    Bootstrap& bootstrap, const std::vector<std::string>& host_ids,
    const std::function<std::shared_ptr<SharedRegion>()>& make_region, Deadline deadline);

/// Collective. Every rank's error text, by rank.
[[nodiscard]] std::vector<std::string> gather_errors(Bootstrap& bootstrap, const std::string& error,
                                                     Deadline deadline);

}  // namespace bluefog::shm
