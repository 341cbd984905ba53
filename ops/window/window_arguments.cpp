// The checks of what a window's calls are given, before anything moves.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "bluefog_cpp/context/context_core.hpp"
#include "bluefog_cpp/error.hpp"
#include "ops/calls/validation.hpp"
#include "ops/window/window_core.hpp"

namespace bluefog::ops {

void WindowCore::check_open(std::string_view call) const {
  if (is_closed_) {
    throw StateError(fmt::format("{}: the window has been freed", where(call)));
  }
  if (context_->core().engine().is_forked()) {
    throw StateError(
        fmt::format("{}: expected the process of that rank, found a fork of it", where(call)));
  }
}

void WindowCore::check_tensor(const BufferView& tensor, std::string_view call) const {
  if (tensor.device != tensor_.device) {
    throw InvalidArgument(fmt::format("{}: expected a tensor on {}, as the window's, found one on {}",
                                      where(call), text_of(tensor_.device),
                                      text_of(tensor.device)));
  }
  if (tensor.count != tensor_.count || tensor.dtype != tensor_.dtype ||
      (tensor.data == nullptr && tensor.count > 0)) {
    throw InvalidArgument(
        fmt::format("{}: expected a tensor like the window's, {}[{}], found {}[{}]{}", where(call),
                    bluefog::name_of(tensor_.dtype), tensor_.count, bluefog::name_of(tensor.dtype),
                    tensor.count, tensor.data == nullptr ? " at a null pointer" : ""));
  }
}

void WindowCore::check_apart(const BufferView& output, std::string_view call) const {
  if (overlaps_in_part(tensor_, output)) {
    throw InvalidArgument(fmt::format(
        "{}: expected the output to be the window's tensor or apart from it, found them "
        "overlapping",
        where(call)));
  }
}

void WindowCore::check_weight(double weight, std::string_view call) const {
  if (!std::isfinite(weight)) {
    throw InvalidArgument(
        fmt::format("{}: expected finite weights, found {}", where(call), weight));
  }
}

void WindowCore::check_some_of(const std::vector<WeightedRank>& some,
                               const std::vector<WeightedRank>& all, std::string_view call,
                               std::string_view role) const {
  for (std::size_t i = 0; i < some.size(); ++i) {
    check_weight(some[i].weight, call);
    const auto is_same = [&](const WeightedRank& other) { return other.rank == some[i].rank; };
    if (std::ranges::none_of(all, is_same)) {
      throw InvalidArgument(fmt::format("{}: expected {} of the window, {}, found rank {}",
                                        where(call), role, ranks_of(all), some[i].rank));
    }
    if (std::ranges::count_if(some, is_same) > 1) {
      throw InvalidArgument(fmt::format("{}: rank {} is named twice", where(call), some[i].rank));
    }
  }
}

void WindowCore::check_lockable(int rank) const {
  if (rank < 0 || rank >= context_->size()) {
    throw InvalidArgument(fmt::format("{}: expected ranks of 0 … {}, found {}", where("mutex"),
                                      context_->size() - 1, rank));
  }
}

}  // namespace bluefog::ops
