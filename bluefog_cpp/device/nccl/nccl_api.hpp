#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "bluefog_cpp/device/cuda/cuda_api.hpp"

namespace bluefog::gpu {

/// ncclComm_t.
using CommHandle = void*;

/// The id by which the ranks of a communicator find each other.
using NcclId = std::array<std::byte, 128>;

/// The calls of NCCL that this library makes: the library's, or a stand-in's in tests.
///
/// Calls that fail throw NcclError with NCCL's own code. A communicator is used by one thread at a
/// time; `abort` may come from any.
class NcclApi {
 public:
  NcclApi() = default;
  NcclApi(const NcclApi&) = delete;
  NcclApi& operator=(const NcclApi&) = delete;
  virtual ~NcclApi() = default;

  /// The version as NCCL counts it: 22809 is 2.28.9.
  [[nodiscard]] virtual int version() = 0;

  [[nodiscard]] virtual NcclId make_id() = 0;
  /// Collective over the `size` ranks with that id; returns when all have come. The communicator is
  /// the current device's.
  [[nodiscard]] virtual CommHandle init(int size, const NcclId& id, int rank) = 0;
  /// Collective.
  virtual void destroy(CommHandle comm) = 0;
  /// Ends what is under way, on this rank, and frees the communicator.
  virtual void abort(CommHandle comm) = 0;
  /// Ends what is under way, on this rank, and keeps the communicator for `shrink`: not at once, as
  /// its state tells. From NCCL 2.28 on. @throws UnsupportedError before.
  virtual void revoke(CommHandle comm) = 0;
  /// Collective over the ranks that are not `gone`: a communicator of them, in their order; the
  /// owner destroys `comm` as before. Work under way is ended. From NCCL 2.27 on.
  /// @throws UnsupportedError before.
  [[nodiscard]] virtual CommHandle shrink(CommHandle comm, std::span<const int> gone) = 0;
  /// The error that arose outside any call, if there is one.
  [[nodiscard]] virtual std::optional<std::string> async_error(CommHandle comm) = 0;

  /// Sends and receives of one thread between the two go at the same time, in no order.
  virtual void group_start() = 0;
  virtual void group_end() = 0;
  virtual void send(const void* data, std::size_t bytes, int peer, CommHandle comm,
                    StreamHandle stream) = 0;
  virtual void receive(void* data, std::size_t bytes, int peer, CommHandle comm,
                       StreamHandle stream) = 0;
};

/// NCCL, loaded from `library`; empty: the one that the process has loaded already (torch's), else
/// the system's, else the one that the build found beside its header.
/// @throws UnsupportedError where this build has no CUDA, or there is no such library, or it lacks
///   a function.
[[nodiscard]] std::shared_ptr<NcclApi> load_nccl(const std::string& library = {});

}  // namespace bluefog::gpu
