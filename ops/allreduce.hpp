#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bluefog_cpp/buffer_view.hpp"
#include "bluefog_cpp/context.hpp"
#include "bluefog_cpp/work.hpp"
#include "ops/options.hpp"

namespace bluefog::ops {

/// The value that an element gets from those of all ranks.
enum class Reduction : std::uint8_t {
  Sum,      ///< Σ_j x_j
  Average,  ///< (1/n) Σ_j x_j
  Min,      ///< the least; a NaN among them gives NaN
  Max,      ///< the greatest; a NaN among them gives NaN
  Product,  ///< Π_j x_j
  And,      ///< bit by bit: 1 where all are
  Or,       ///< bit by bit: 1 where one is
  Xor,      ///< bit by bit: 1 where an odd number are
};

/// The ranks that take part in a collective.
enum class Scope : std::uint8_t {
  Global,  ///< all ranks of the context
  /// Each machine for itself (`Context::machines`). Every rank calls it all the same.
  Machine,
};

/// The choices of `allreduce`; the reduction and the scope are the same on all ranks.
struct AllreduceOptions {
  std::string name{};                        ///< as `OpOptions::name`
  Reduction reduction = Reduction::Average;  ///< what an element becomes
  Scope scope = Scope::Global;               ///< over whom
  BufferUse buffer = BufferUse::Values;      ///< as `OpOptions::buffer`
  /// This rank's group in place of the scope: rising, this rank among them, the same list on all of
  /// them. Every rank of the context calls it all the same, each with its own group, whose count
  /// and dtype need not be the others'. Empty: the scope's ranks.
  std::vector<int> ranks{};
};

/// Sum or average over all ranks of the scope, in place, the same bits on each of them:
///
///     x_i ← Σ_j x_j   or   x_i ← x_0 − (Σ_{j>0} (x_0 − x_j)) / n
///
/// with 0 the lowest rank of the scope: the mean of equal values is exactly that value, and a mean
/// that is finite does not overflow on the way. Elements of which that is not finite become
/// Σ_j (x_j / n). Sums are formed by rising rank, in float32 (float64 for float64, the type itself
/// for integers); only the result is rounded to the buffer's type. Each element is summed by one
/// rank and copied by the others; small buffers are summed by each rank in the same order.
/// @param buffer `count` elements, the same count and dtype on all ranks. Sums take
///   every dtype but bool (integers wrap around), averages the floating ones, operations on bits
///   integers and bool, the others every dtype. Its contents are
///   unspecified after an error of the call.
/// Other reductions than sums and averages are of buffers on the CPU.
/// Buffers are on the CPU, or on every rank on the device of its context (`Context::use_device`,
/// docs/gpu.md); a blocking call on a device returns when its result is on its way there.
/// Every rank calls it with the same reduction and scope, in the same order as its other calls.
/// Cost per rank: 2(n−1)/n of the buffer's bytes in 2(n−1) messages; small ones (up to 4 KiB), and
/// those of two ranks, n−1 messages of the whole.
/// @throws InvalidArgument for an unsupported dtype or option, a null or negative buffer, or a list
///   of ranks as above that does not rise or lacks this rank.
[[nodiscard]] Work allreduce_nonblocking(Context& context, BufferView buffer,
                                         const AllreduceOptions& options = {});
/// Waits for `allreduce_nonblocking`, with its errors and those of `Work::wait`.
void allreduce(Context& context, BufferView buffer, const AllreduceOptions& options = {});

}  // namespace bluefog::ops
