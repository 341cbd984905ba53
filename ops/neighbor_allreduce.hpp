#pragma once

#include <memory>
#include <string>

#include "bluefog_cpp/buffer_view.hpp"
#include "bluefog_cpp/context.hpp"
#include "bluefog_cpp/settings.hpp"
#include "bluefog_cpp/work.hpp"
#include "topology/neighbor_plan.hpp"

namespace bluefog::ops {

/// Whether senders and receivers of a step are compared before any data moves.
enum class PlanCheck : std::uint8_t {
  /// One all-gather of bitmaps; a plan that does not fit the others' is an error on every rank.
  Checked,
  /// For plans that are known to agree (static graphs, schedules): no message is spent.
  Trusted,
};

/// The moment from which the result of a non-blocking call may be written.
enum class Completion : std::uint8_t {
  /// The result is written as soon as it can be computed.
  AsItArrives,
  /// The result is not written before somebody waits for the work. The whole payload is copied out
  /// at the start (memory: one more copy), so that peers never wait for this rank meanwhile. Calls
  /// by NCCL copy nothing, but keep the sources' payloads on the device (memory: one buffer each).
  OnWait,
};

/// The choices of `neighbor_allreduce`.
struct NeighborAllreduceOptions {
  std::string name{};                               ///< as `OpOptions::name`
  PlanCheck check = PlanCheck::Trusted;             ///< the same on all ranks
  Completion completion = Completion::AsItArrives;  ///< this rank's own
  /// Whom a call in place waits for. This rank's own; `Auto`: what `BLUEFOG_SYNCHRONISATION` says.
  SynchronisationChoice synchronisation = SynchronisationChoice::Auto;
};

/// Weighted average with neighbours, in place:
///
///     x_i ← w_ii x_i + Σ_j w_ij · d_j(i) · x_j
///
/// with w from `plan.self_weight` and `plan.sources`, and d_j(i) the weight that rank j sends with
/// (its `plan.destinations`).
///
/// Weights w_ii and w_ij d_j(i) that sum to 1 within 1e-9 make an average that counts from the
/// value of rank b, the one of the largest weight, of several the lowest:
///
///     x_i ← x_b − Σ_{j≠b} w_ij d_j(i) (x_b − x_j)
///
/// with b's weight as the remainder: equal values stay exactly that value. Elements of which that
/// is not finite, and all of other rows, are sums of products. All is formed by rising rank, this
/// rank included, in float32 (float64 for float64), each difference, product and sum rounded by
/// itself: results do not depend on the transport, and ranks with the same row get the same bits.
///
/// @param buffer `count` elements of float16, bfloat16, float32 or float64; the same count and
///   dtype on all ranks; read and written until the work is complete. An error that a mismatch of
///   calls caused leaves it as it was. On the CPU, or on every rank on the device of its context
///   (`Context::use_device`): docs/gpu.md says which stream then orders what.
/// @param plan this rank's part; all ranks' parts agree. Kept alive by the work.
/// Every rank calls it, in the same order as its other calls.
/// Cost per rank: one message of `count` elements to each destination; inside a host one copy
/// into shared memory, whatever their number.
/// @throws InvalidArgument for an unsupported dtype, a null or negative buffer, one on another
///   device, a plan of another rank or size, UnsupportedError for more than 239 sources on a
///   device. `Work::wait` throws MismatchError, PeerFailure, TimeoutError.
/// Source: BlueFog's `neighbor_allreduce_nonblocking`; D-PSGD, arXiv 1705.09056.
[[nodiscard]] Work neighbor_allreduce_nonblocking(Context& context, BufferView buffer,
                                                  std::shared_ptr<const NeighborPlan> plan,
                                                  const NeighborAllreduceOptions& options = {});

/// The form out of place: `output` gets the result, `input` is left as it is. The two have the same
/// count and dtype and do not overlap.
[[nodiscard]] Work neighbor_allreduce_nonblocking(Context& context, ConstBufferView input,
                                                  BufferView output,
                                                  std::shared_ptr<const NeighborPlan> plan,
                                                  const NeighborAllreduceOptions& options = {});

/// @name Blocking forms
/// @{

/// They wait for `neighbor_allreduce_nonblocking`, with its errors: return when the result is in
/// memory; on a device when it is launched, like `Work::wait`.
void neighbor_allreduce(Context& context, BufferView buffer,
                        const std::shared_ptr<const NeighborPlan>& plan,
                        const NeighborAllreduceOptions& options = {});
void neighbor_allreduce(Context& context, ConstBufferView input, BufferView output,
                        const std::shared_ptr<const NeighborPlan>& plan,
                        const NeighborAllreduceOptions& options = {});
/// @}

}  // namespace bluefog::ops
