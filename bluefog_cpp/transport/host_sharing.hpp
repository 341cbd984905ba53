#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bluefog_cpp/bootstrap.hpp"
#include "bluefog_cpp/deadline.hpp"
#include "bluefog_cpp/transport/shm/shm_transport.hpp"

namespace bluefog::shm {

/// Identity of this host as the kernel sees it: ranks with the same one may be
/// able to share memory.
[[nodiscard]] std::string detect_host_id();

/// The transport, or why there is none.
struct ConnectResult {
  std::unique_ptr<ShmTransport> transport{};
  /// The errors by rank, empty where there was none.
  std::vector<std::string> errors{};
};

/// Collective over all ranks of `bootstrap`. The ranks with this rank's host identity form a group;
/// they share a host when each has really mapped their common memory.
/// @param host_ids every rank's host identity.
/// @param arena the memory of this host's ranks, null on all of them before their first group; gets
///   it, or null where one of them failed.
/// @return null transport, with reasons, if a rank of this host failed; and
///   null without a reason if this rank is alone on its host.
[[nodiscard]] ConnectResult connect(Bootstrap& bootstrap, std::string_view name,
                                    const std::vector<std::string>& host_ids,
                                    std::shared_ptr<HostArena>& arena, const ShmOptions& options,
                                    Deadline deadline);

}  // namespace bluefog::shm
