#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bluefog_cpp/buffer_view.hpp"
#include "bluefog_cpp/context.hpp"
#include "bluefog_cpp/engine/operation.hpp"
#include "bluefog_cpp/work.hpp"
#include "ops/allreduce.hpp"
#include "ops/options.hpp"
#include "ops/reduce.hpp"

/// @file
/// Calls on several tensors that are one call: ranks with different numbers of tensors fail in it,
/// and go on together with the next.
namespace bluefog::ops {

/// The operations of a series. They use their buffers, and keep the owners of these, until it ends.
using Operations = std::vector<std::shared_ptr<Operation>>;

/// The operation of `allreduce_nonblocking`, whose errors it throws; the call is not refused then.
/// The buffer is on the CPU.
[[nodiscard]] std::shared_ptr<Operation> make_allreduce(Context& context, BufferView buffer,
                                                        const AllreduceOptions& options);
/// The same of `allgather_parts_nonblocking`. This rank's own part is in its place at once.
[[nodiscard]] std::shared_ptr<Operation> make_allgather_parts(Context& context,
                                                              ConstBufferView input,
                                                              std::vector<BufferView> outputs,
                                                              const OpOptions& options);
/// The same of `reduce_scatter_nonblocking`.
[[nodiscard]] std::shared_ptr<Operation> make_reduce_scatter(Context& context,
                                                             std::vector<ConstBufferView> inputs,
                                                             BufferView output,
                                                             const ReduceOptions& options);

/// The tensors that a series may have: messages count the exchanges of a call with 16 bits.
inline constexpr std::size_t kMostOfSeries = 8192;

/// Starts one call that does the exchanges of one operation after those of the one before. Every
/// rank makes it, with as many.
/// @param kind theirs. @param parts at most `kMostOfSeries`; none of them leaves out exchanges that
///   other ranks make (`ExchangeSpec::least_step`).
[[nodiscard]] Work submit_series(Context& context, OpKind kind, Operations parts);

}  // namespace bluefog::ops
