#include "ops/window/window_arguments.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <typeinfo>

#include "bluefog_cpp/error.hpp"
#include "ops/calls/validation.hpp"
#include "ops/compression.hpp"
#include "ops/window/window_record.hpp"

namespace bluefog::ops {
namespace {

/// Whether others, who are told its name alone, decode by the same code.
bool is_of_the_library(const Compression& compression) {
  try {
    const auto named = compression_named(compression.name());
    const Compression& known = *named;
    return typeid(known) == typeid(compression);
  } catch (const InvalidArgument&) {
    return false;
  }
}

}  // namespace

void check_tensor(const WindowIdentity& window, const BufferView& tensor, std::string_view call) {
  const BufferView& own = window.tensor();
  if (tensor.device != own.device) {
    throw InvalidArgument(
        fmt::format("{}: expected a tensor on {}, as the window's, found one on {}",
                    window.where(call), text_of(own.device), text_of(tensor.device)));
  }
  if (tensor.count != own.count || tensor.dtype != own.dtype ||
      (tensor.data == nullptr && tensor.count > 0)) {
    throw InvalidArgument(fmt::format(
        "{}: expected a tensor like the window's, {}[{}], found {}[{}]{}", window.where(call),
        bluefog::name_of(own.dtype), own.count, bluefog::name_of(tensor.dtype), tensor.count,
        tensor.data == nullptr ? " at a null pointer" : ""));
  }
}

void check_apart(const WindowIdentity& window, const BufferView& output, std::string_view call) {
  if (overlaps_in_part(window.tensor(), output)) {
    throw InvalidArgument(fmt::format(
        "{}: expected the output to be the window's tensor or apart from it, found them "
        "overlapping",
        window.where(call)));
  }
}

void check_weight(const WindowIdentity& window, double weight, std::string_view call) {
  if (!std::isfinite(weight)) {
    throw InvalidArgument(
        fmt::format("{}: expected finite weights, found {}", window.where(call), weight));
  }
}

void check_some_of(const WindowIdentity& window, const std::vector<WeightedRank>& some,
                   const std::vector<WeightedRank>& all, std::string_view call,
                   std::string_view role) {
  for (std::size_t i = 0; i < some.size(); ++i) {
    check_weight(window, some[i].weight, call);
    const auto is_same = [&](const WeightedRank& other) { return other.rank == some[i].rank; };
    if (std::ranges::none_of(all, is_same)) {
      throw InvalidArgument(fmt::format("{}: expected {} of the window, {}, found rank {}",
                                        window.where(call), role, ranks_of(all), some[i].rank));
    }
    if (std::ranges::count_if(some, is_same) > 1) {
      throw InvalidArgument(
          fmt::format("{}: rank {} is named twice", window.where(call), some[i].rank));
    }
  }
}

void check_code(const WindowIdentity& window, const Compression* compression,
                std::string_view call) {
  if (compression == nullptr) {
    return;
  }
  const BufferView& tensor = window.tensor();
  if (tensor.device.kind != DeviceKind::Cpu) {
    throw UnsupportedError(
        fmt::format("{}: compression {}: expected a window on the CPU, where codes are made, found "
                    "one on a device",
                    window.where(call), compression->name()));
  }
  if (tensor.dtype != Dtype::Float32 && tensor.dtype != Dtype::Float64) {
    throw UnsupportedError(
        fmt::format("{}: compression {}: expected a window of float32 or float64, found {}",
                    window.where(call), compression->name(), bluefog::name_of(tensor.dtype)));
  }
  if (!is_of_the_library(*compression)) {
    throw InvalidArgument(fmt::format(
        "{}: compression: expected one of {}, which the owner of a buffer knows by its name, found "
        "'{}' of this program",
        window.where(call), fmt::join(compression_names(), ", "), compression->name()));
  }
}

void check_lockable(const WindowIdentity& window, int rank) {
  if (rank < 0 || rank >= window.context().size()) {
    throw InvalidArgument(fmt::format("{}: expected ranks of 0 to {}, found {}",
                                      window.where("mutex"), window.context().size() - 1, rank));
  }
}

}  // namespace bluefog::ops
