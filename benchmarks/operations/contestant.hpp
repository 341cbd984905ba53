#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bluefog_cpp/buffer_view.hpp"
#include "bluefog_cpp/context.hpp"

namespace bluefog::benchmarks {

/// One operation of one peer, on one size of buffer.
struct Contestant {
  std::string peer;
  std::string op;
  /// Bytes that a rank receives in a call, in buffers; the bus bandwidth is counted by them.
  double bus_factor = 1;
  /// Memory of the calls beside their buffer, in buffers. The first call takes it.
  double memory = 0;
  /// The buffers lie in memory that the ranks of a host share.
  bool takes_shared_buffers = false;
  /// A copy, of which the fastest is the limit that others are multiples of.
  bool is_limit = false;
  /// Does the operation on this rank's buffer, in place. Every rank calls it.
  std::function<void(const BufferView&)> call;
  /// Calls after which the contestant does the same again: a timing spans a multiple of them.
  int period = 1;
  /// Untimed work of every rank before each timed batch of calls, if given.
  std::function<void(const BufferView&)> prepare{};
  /// In place of `call`, where it writes to another buffer, which is as large and lies as far back.
  std::function<void(const BufferView& to, const BufferView& from)> copy{};
};

/// The setting that contestants are made for.
struct Setting {
  Context& context;
  Dtype dtype = Dtype::Float32;
  /// Elements of a buffer.
  std::int64_t count = 0;
  /// Why Open MPI's own calls are left out; empty: they are not.
  std::string without_mpi;
  /// Why gloo's own calls are left out; empty: they are not.
  std::string without_gloo;
};

/// This project's operations.
[[nodiscard]] std::vector<Contestant> own_contestants(const Setting& setting);

/// Why Open MPI's calls cannot run in this setting; empty if they can.
[[nodiscard]] std::string why_no_mpi(const Setting& setting);

/// Open MPI's own calls on a communicator of their own: MPI_Allreduce, send/receive and
/// MPI_Neighbor_alltoallv with averaging. None where `why_no_mpi` has a reason.
[[nodiscard]] std::vector<Contestant> mpi_contestants(const Setting& setting);

/// Why gloo's calls from C++ cannot run in this setting; empty if they can.
[[nodiscard]] std::string why_no_gloo(const Setting& setting);

/// Collective. gloo's own calls from C++, as its users write them without torch: all-reduce, and
/// send/receive with averaging; each with threads that are free, and bound to the rank's cores. None
/// where `why_no_gloo` has a reason.
[[nodiscard]] std::vector<Contestant> gloo_contestants(const Setting& setting);

/// The limits on one host: copies of the buffer, which all ranks do at the same time, to another one
/// of those that calls take in turn. The C library's, and this project's two.
[[nodiscard]] std::vector<Contestant> memcpy_contestants();

}  // namespace bluefog::benchmarks
