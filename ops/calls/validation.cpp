#include "ops/calls/validation.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <limits>

#include "bluefog_cpp/context/context_core.hpp"
#include "bluefog_cpp/device/device_channel.hpp"
#include "ops/sums/cuda/sum_loop.hpp"

namespace bluefog::ops {

std::string where(const Context& context, OpKind kind) {
  return fmt::format("rank {}, {}", context.rank(), name_of(kind));
}

void check_dtype(const Context& context, OpKind kind, Dtype dtype) {
  if (dtype > Dtype::Bool) {
    throw InvalidArgument(fmt::format("{}: expected a dtype of Dtype, found number {}",
                                      where(context, kind), static_cast<int>(dtype)));
  }
}

std::string text_of(const Device& device) {
  return device.kind == DeviceKind::Cpu ? "the CPU" : fmt::format("CUDA device {}", device.index);
}

namespace {

void check_device(const Context& context, OpKind kind, const Device& device) {
  const auto& channel = context.core().device();
  if (!channel) {
    throw InvalidArgument(fmt::format(
        "{}: expected a buffer on the CPU, or Context::use_device before this call, found "
        "a buffer on {}",
        where(context, kind), text_of(device)));
  }
  if (device.index != channel->device()) {
    throw InvalidArgument(fmt::format(
        "{}: expected a buffer on the CPU or on CUDA device {} (Context::use_device), found one on {}",
        where(context, kind), channel->device(), text_of(device)));
  }
  if (const auto failure = channel->failure()) {
    try {
      std::rethrow_exception(failure);
    } catch (const std::exception& error) {
      throw StateError(
          fmt::format("{}: this context makes no calls on {} any more, only a new context can: {}",
                      where(context, kind), text_of(device), error.what()));
    }
  }
}

}  // namespace

void check_buffer(const Context& context, OpKind kind, const ConstBufferView& buffer,
                  Residence residence) {
  check_dtype(context, kind, buffer.dtype);
  if (buffer.count < 0) {
    throw InvalidArgument(fmt::format("{}: expected a count of 0 or more elements, found {}",
                                      where(context, kind), buffer.count));
  }
  const auto most =
      std::numeric_limits<std::int64_t>::max() / static_cast<std::int64_t>(size_of(buffer.dtype));
  if (buffer.count > most) {
    throw InvalidArgument(fmt::format("{}: expected at most {} elements of {}, found {}",
                                      where(context, kind), most, name_of(buffer.dtype),
                                      buffer.count));
  }
  if (buffer.data == nullptr && buffer.count > 0) {
    throw InvalidArgument(fmt::format("{}: expected memory for {} elements, found a null pointer",
                                      where(context, kind), buffer.count));
  }
  if (buffer.device.kind == DeviceKind::Cpu) {
    return;
  }
  if (residence == Residence::Cpu) {
    throw UnsupportedError(fmt::format(
        "{}: expected a buffer on the CPU, found one on {}, which this call does not support yet",
        where(context, kind), text_of(buffer.device)));
  }
  check_device(context, kind, buffer.device);
  // A kernel that reads it would end the whole process's use of the device.
  if (reinterpret_cast<std::uintptr_t>(buffer.data) % size_of(buffer.dtype) != 0) {
    throw InvalidArgument(fmt::format(
        "{}: expected memory for {} on {} at a multiple of {} bytes, found it {} bytes behind one",
        where(context, kind), name_of(buffer.dtype), text_of(buffer.device), size_of(buffer.dtype),
        reinterpret_cast<std::uintptr_t>(buffer.data) % size_of(buffer.dtype)));
  }
}

void check_operands(const Context& context, OpKind kind, const ConstBufferView& buffer,
                    std::size_t operands) {
  if (buffer.device.kind != DeviceKind::Cpu &&
      context.core().device()->way_of(kind) != DeviceWay::Host &&
      operands > cuda::kMostSumOperands) {
    throw UnsupportedError(fmt::format(
        "{}: expected at most {} values to add up on a GPU, this rank's own included, found {}",
        where(context, kind), cuda::kMostSumOperands, operands));
  }
}

void check_floating(const Context& context, OpKind kind, Dtype dtype) {
  if (!is_floating(dtype)) {
    throw InvalidArgument(fmt::format(
        "{}: expected float16, bfloat16, float32 or float64 for an average, found {}; convert the "
        "values first (in Python tensor.float()){}",
        where(context, kind), name_of(dtype),
        kind == OpKind::Allreduce ? ", or take their sum (Reduction::Sum, in Python average=False)"
                                  : ""));
  }
}

bool overlaps_in_part(const ConstBufferView& one, const ConstBufferView& other) {
  const auto* const a = static_cast<const std::byte*>(one.data);
  const auto* const b = static_cast<const std::byte*>(other.data);
  return a != b && a < b + other.bytes() && b < a + one.bytes();
}

void check_sent_apart(const Context& context, OpKind kind, const ConstBufferView& sent,
                      const BufferView& taken) {
  const bool is_same = sent.data == taken.data && sent.count > 0 && taken.count > 0;
  if (is_same || overlaps_in_part(sent, taken)) {
    throw InvalidArgument(
        fmt::format("{}: expected inputs and outputs apart, found an input of {} bytes and an "
                    "output of {} bytes overlapping; give copies of the inputs",
                    where(context, kind), sent.bytes(), taken.bytes()));
  }
}

void check_in_and_out(const Context& context, OpKind kind, const ConstBufferView& input,
                      const BufferView& output, Residence residence) {
  check_buffer(context, kind, input, residence);
  check_buffer(context, kind, output, residence);
  if (input.device != output.device) {
    throw InvalidArgument(
        fmt::format("{}: expected input and output on the same device, found them on {} and {}",
                    where(context, kind), text_of(input.device), text_of(output.device)));
  }
  check_floating(context, kind, output.dtype);
  if (input.dtype != output.dtype || input.count != output.count) {
    throw InvalidArgument(fmt::format("{}: expected an output like the input, {}[{}], found {}[{}]",
                                      where(context, kind), name_of(input.dtype), input.count,
                                      name_of(output.dtype), output.count));
  }
  if (overlaps_in_part(input, output)) {
    throw InvalidArgument(fmt::format(
        "{}: expected input and output to be the same memory or apart, found them overlapping",
        where(context, kind)));
  }
}

void check_plan(const Context& context, OpKind kind, const NeighborPlan* plan) {
  check_plan_of(context, kind, plan, "rank", context.rank(), context.size());
}

void check_plan_of(const Context& context, OpKind kind, const NeighborPlan* plan,
                   std::string_view what, int own, int count) {
  if (plan == nullptr) {
    throw InvalidArgument(
        fmt::format("{}: expected a plan, found a null pointer", where(context, kind)));
  }
  if (plan->rank != own || plan->size != count) {
    throw InvalidArgument(
        fmt::format("{}: expected the plan of {} {} of {}, found that of {} {} of {}",
                    where(context, kind), what, own, count, what, plan->rank, plan->size));
  }
  try {
    plan->validate();
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(fmt::format(
        "{}: {}{}", where(context, kind),
        what == "rank" ? "" : fmt::format("in a plan whose ranks are {}s, ", what), error.what()));
  }
}

}  // namespace bluefog::ops
