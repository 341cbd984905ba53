#pragma once

#include <cstdint>
#include <exception>
#include <string_view>
#include <utility>

#include "bluefog_cpp/buffer_view.hpp"
#include "bluefog_cpp/context.hpp"
#include "bluefog_cpp/context/context_core.hpp"
#include "bluefog_cpp/error.hpp"
#include "topology/neighbor_plan.hpp"

namespace bluefog::ops {

/// "rank 1, neighbor_allreduce": the beginning of error messages of arguments.
[[nodiscard]] std::string where(const Context& context, OpKind kind);

/// "the CPU", "CUDA device 1".
[[nodiscard]] std::string text_of(const Device& device);

/// @throws InvalidArgument for a number that is no dtype.
void check_dtype(const Context& context, OpKind kind, Dtype dtype);

/// The places where a call takes buffers.
enum class Residence : std::uint8_t {
  Cpu,
  /// On the CPU, or on the device that the context uses.
  Anywhere,
};

/// @throws InvalidArgument for an unknown dtype, a null or negative buffer or one on another
///   device, StateError where the context's device is of no use any more, UnsupportedError for a
///   buffer off the CPU where `residence` allows no other.
void check_buffer(const Context& context, OpKind kind, const ConstBufferView& buffer,
                  Residence residence = Residence::Cpu);

/// @throws UnsupportedError if a sum of so many operands cannot be formed where the buffer is.
void check_operands(const Context& context, OpKind kind, const ConstBufferView& buffer,
                    std::size_t operands);

/// @throws InvalidArgument unless the buffer's dtype is one of the floating ones.
void check_floating(const Context& context, OpKind kind, Dtype dtype);

/// True if the two are neither the same memory nor apart.
[[nodiscard]] bool overlaps_in_part(const ConstBufferView& one, const ConstBufferView& other);

/// Checks that what is sent to another rank does not lie where what others send is written.
/// @throws InvalidArgument.
void check_sent_apart(const Context& context, OpKind kind, const ConstBufferView& sent,
                      const BufferView& taken);

/// Checks both buffers, and their dtype, for a weighted average.
/// @throws InvalidArgument also unless they have the same dtype, count and device and are the same
/// memory or apart.
void check_in_and_out(const Context& context, OpKind kind, const ConstBufferView& input,
                      const BufferView& output, Residence residence = Residence::Cpu);

/// @throws InvalidArgument if the plan is null, another rank's, of another size, or malformed.
void check_plan(const Context& context, OpKind kind, const NeighborPlan* plan);

/// `check_plan` for a plan among `count` of `what` ("machine"), in which this rank is of `own`.
void check_plan_of(const Context& context, OpKind kind, const NeighborPlan* plan,
                   std::string_view what, int own, int count);

/// Runs the checks of a call's arguments. If they fail, the call counts as refused: peers that
/// wait for this rank in it are told why.
/// @param partner the answer of `Operation::partner`.
template <typename Checks>
void validate(Context& context, Checks&& checks, int partner = -1) {
  try {
    std::forward<Checks>(checks)();
  } catch (const std::exception& e) {
    context.core().engine().refuse(e.what(), partner);
    throw;
  }
}

}  // namespace bluefog::ops
