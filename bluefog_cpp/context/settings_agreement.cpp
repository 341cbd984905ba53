#include "bluefog_cpp/context/settings_agreement.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <exception>
#include <span>
#include <string_view>
#include <utility>

#include "bluefog_cpp/base/version.hpp"
#include "bluefog_cpp/bootstrap/own_problem.hpp"
#include "bluefog_cpp/error.hpp"
#include "bluefog_cpp/transport/host_sharing.hpp"

namespace bluefog {
namespace {

using Lines = std::vector<std::string>;

std::string_view word_of(DeviceWayChoice choice) {
  switch (choice) {
    case DeviceWayChoice::Nccl:
      return "nccl";
    case DeviceWayChoice::Peer:
      return "peer";
    case DeviceWayChoice::Host:
      return "host";
    default:
      return "auto";
  }
}

std::string_view word_of(NetworkChoice choice) {
  switch (choice) {
    case NetworkChoice::Mpi:
      return "mpi";
    case NetworkChoice::Tcp:
      return "tcp";
    default:
      return "auto";
  }
}

/// The settings on which the way to connect depends: the same on all ranks.
Lines common_settings(const Settings& settings) {
  return {fmt::format("bluefog_cpp {}", own_version()),
          fmt::format("BLUEFOG_TRANSPORT {}",
                      settings.transport == TransportChoice::Mpi ? "mpi" : "auto"),
          fmt::format("BLUEFOG_NETWORK {}", word_of(settings.network)),
          fmt::format("BLUEFOG_ON_FAILURE {}",
                      settings.on_failure == OnFailure::Shrink ? "shrink" : "raise"),
          fmt::format("BLUEFOG_HEARTBEAT {}",
                      std::chrono::duration<double>(settings.heartbeat).count()),
          fmt::format("BLUEFOG_NODES_PER_MACHINE {}", settings.nodes_per_machine),
          fmt::format("BLUEFOG_SHM_CHUNK_BYTES {}", settings.shm_chunk_bytes),
          fmt::format("BLUEFOG_SHM_SLOTS {}", settings.shm_slots),
          fmt::format("BLUEFOG_MPI_CHUNK_BYTES {}", settings.mpi_chunk_bytes),
          fmt::format("BLUEFOG_MPI_DEPTH {}", settings.mpi_depth),
          fmt::format("BLUEFOG_OPS_ON_CPU {:d}", settings.ops_on_cpu),
          fmt::format("BLUEFOG_DEVICE_WAY {}", word_of(settings.device_way)),
          fmt::format("BLUEFOG_ALLGATHER_BY_MPI {:d}", settings.allgather_by_mpi),
          fmt::format("BLUEFOG_ALLREDUCE_BY_MPI {:d}", settings.allreduce_by_mpi),
          fmt::format("BLUEFOG_BROADCAST_BY_MPI {:d}", settings.broadcast_by_mpi),
          fmt::format("BLUEFOG_HIERARCHICAL_NEIGHBOR_ALLREDUCE_BY_MPI {:d}",
                      settings.hierarchical_neighbor_allreduce_by_mpi),
          fmt::format("BLUEFOG_NEIGHBOR_ALLGATHER_BY_MPI {:d}", settings.neighbor_allgather_by_mpi),
          fmt::format("BLUEFOG_NEIGHBOR_ALLREDUCE_BY_MPI {:d}", settings.neighbor_allreduce_by_mpi),
          fmt::format("BLUEFOG_WIN_ON_CPU {:d}", settings.win_on_cpu),
          fmt::format("BLUEFOG_WIN_OPS_BY_MPI {:d}", settings.win_ops_by_mpi)};
}

Lines split_lines(std::string_view text) {
  Lines lines(1);
  for (const char c : text) {
    if (c == '\n') {
      lines.emplace_back();
    } else {
      lines.back() += c;
    }
  }
  return lines;
}

std::string on_one_line(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  return text;
}

[[noreturn]] void refuse_settings(int own_rank, std::string_view expected, std::size_t rank,
                                  std::string_view found) {
  const Lines first = split_lines(expected);
  const Lines lines = split_lines(found);
  const auto [theirs, ours] = std::ranges::mismatch(lines, first);
  throw InvalidArgument(fmt::format(
      "rank {}, Context::create: expected the same setting on all ranks, rank 0 has {}, rank {} has "
      "{}",
      own_rank, ours != first.end() ? *ours : "none", rank,
      theirs != lines.end() ? *theirs : "none"));
}

}  // namespace

std::vector<std::string> agree_on_settings(Bootstrap& bootstrap, const Settings& settings,
                                           const std::string& problem, Deadline deadline) {
  std::string id = settings.host_id;
  if (id.empty()) {
    // Ranks that are threads are on one host by definition.
    id = bootstrap.in_process() ? "process" : shm::detect_host_id();
  }
  const std::string text = fmt::format("{}\n{}\n{}", fmt::join(common_settings(settings), "\n"),
                                       on_one_line(problem), on_one_line(id));
  std::vector<std::string> ids;
  std::vector<std::string> problems;
  std::vector<std::string_view> chosen;
  std::exception_ptr own;
  if (!problem.empty()) {
    own = std::make_exception_ptr(
        InvalidArgument(fmt::format("rank {}, Context::create: {}", bootstrap.rank(), problem)));
  }
  const auto blobs = allgather_unless(own, bootstrap, std::as_bytes(std::span(text)), deadline);
  for (const auto& blob : blobs) {
    const std::string_view theirs(reinterpret_cast<const char*>(blob.data()), blob.size());
    const std::size_t id_at = theirs.rfind('\n');
    const std::size_t problem_at = theirs.rfind('\n', id_at - 1);
    ids.emplace_back(theirs.substr(id_at + 1));
    problems.emplace_back(theirs.substr(problem_at + 1, id_at - problem_at - 1));
    chosen.push_back(theirs.substr(0, problem_at));
  }
  for (std::size_t rank = 0; rank < problems.size(); ++rank) {
    if (!problems[rank].empty()) {
      throw PeerFailure(static_cast<int>(rank),
                        fmt::format("rank {}, Context::create: rank {} refused: {}",
                                    bootstrap.rank(), rank, problems[rank]));
    }
  }
  // A rank with a problem may have other settings for that alone.
  for (std::size_t rank = 0; rank < chosen.size(); ++rank) {
    if (chosen[rank] != chosen.front()) {
      refuse_settings(bootstrap.rank(), chosen.front(), rank, chosen[rank]);
    }
  }
  return ids;
}

}  // namespace bluefog
