#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bluefog_cpp/buffer_view.hpp"
#include "bluefog_cpp/context.hpp"
#include "bluefog_cpp/work.hpp"
#include "ops/options.hpp"

namespace bluefog::ops {

enum class Reduction : std::uint8_t { Sum, Average };

// Buffers of allreduce, broadcast and allgather are on the CPU, or on every rank on the device of
// its context (`Context::use_device`, docs/gpu.md). Blocking calls on a device return when their
// result is on its way there, like `Work::wait`.

/// The ranks that take part in a collective.
enum class Scope : std::uint8_t {
  Global,
  /// Each machine for itself (`Context::machines`). Every rank calls it all the same.
  Machine,
};

struct AllreduceOptions {
  std::string name{};  ///< as `OpOptions::name`
  Reduction reduction = Reduction::Average;
  Scope scope = Scope::Global;
};

/// Sum or average over all ranks of the scope, in place, the same bits on each of them:
///
///     x_i ← Σ_j x_j   or   x_i ← (Σ_j x_j) / n
///
/// Sums are formed by rising rank, then divided by n, in float32 (float64 for float64, the type
/// itself for integers); only the result is rounded to the buffer's type. Each element is summed by
/// one rank and copied by the others; small buffers are summed by each rank in the same order.
/// @param buffer `count` elements, the same count and dtype on all ranks. Sums take
///   every dtype but bool (integers wrap around), averages the floating ones. Its contents are
///   unspecified after an error of the call.
/// Every rank calls it with the same reduction and scope, in the same order as its other calls.
/// Cost per rank: 2(n−1)/n of the buffer's bytes in 2(n−1) messages; small ones (up to 4 KiB) n−1
/// messages of the whole.
/// @throws InvalidArgument for an unsupported dtype or option or a null or negative buffer.
[[nodiscard]] Work allreduce_nonblocking(Context& context, BufferView buffer,
                                         const AllreduceOptions& options = {});
void allreduce(Context& context, BufferView buffer, const AllreduceOptions& options = {});

/// Every rank's buffer becomes `root`'s. Any dtype; same count, dtype and root on all ranks.
/// Cost: along a binomial tree from the root to one rank of each other host, each of which passes
/// it on when it has all of it; each of them copies once into shared memory for its own host.
/// @throws InvalidArgument if `root` is not a rank; on every rank that passed it.
[[nodiscard]] Work broadcast_nonblocking(Context& context, BufferView buffer, int root,
                                         const OpOptions& options = {});
void broadcast(Context& context, BufferView buffer, int root, const OpOptions& options = {});

/// Gives the memory for a result whose size is only known once the call is under way: called once
/// with every rank's number of elements, by rank; returns room for their sum, of the input's dtype.
using AllocateGathered = std::function<BufferView(const std::vector<std::int64_t>& counts)>;

/// The ranks' inputs one after the other, by rank. Counts may differ, the dtype not.
/// `allocate` is called before `Work::wait` returns, from the caller's or the progress thread,
/// while other calls of this context stand still: it must not call into the context, nor take a
/// lock that a thread holds while it calls into the context. An exception from it ends the call
/// here, and the other ranks' calls by PeerFailure. The input may lie in the result's memory; on a
/// device only in its own place there. The result is on the input's device, and `Work::wait` orders
/// it on the input's stream.
/// Cost per rank: n−1 messages of 8 bytes, then n−1 of its own input, copied once inside a host.
/// @throws InvalidArgument for a null or negative input, or room of another size than asked for.
[[nodiscard]] Work allgather_nonblocking(Context& context, ConstBufferView input,
                                         AllocateGathered allocate, const OpOptions& options = {});
void allgather(Context& context, ConstBufferView input, AllocateGathered allocate,
               const OpOptions& options = {});

/// Returns when every rank has entered it; knows nothing of devices. Cost: ⌈log₂ n⌉ messages.
[[nodiscard]] Work barrier_nonblocking(Context& context);
void barrier(Context& context);

}  // namespace bluefog::ops
