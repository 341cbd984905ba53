#pragma once

#include <string_view>
#include <vector>

#include "bluefog_cpp/buffer_view.hpp"
#include "bluefog_cpp/weighted_rank.hpp"
#include "ops/window/window_identity.hpp"

namespace bluefog::ops {

class Compression;

// Checks of a call's arguments, before anything moves. They throw InvalidArgument.

/// Checks that `tensor` is like the window's, on the same device.
void check_tensor(const WindowIdentity& window, const BufferView& tensor, std::string_view call);
/// Checks that `some` are ranks of `all`, each named once, with finite weights.
/// @param role "sources", "destinations".
void check_some_of(const WindowIdentity& window, const std::vector<WeightedRank>& some,
                   const std::vector<WeightedRank>& all, std::string_view call,
                   std::string_view role);
/// Checks that the output is the window's tensor itself or does not overlap it.
void check_apart(const WindowIdentity& window, const BufferView& output, std::string_view call);
/// Checks that the weight is finite.
void check_weight(const WindowIdentity& window, double weight, std::string_view call);
/// Checks that other ranks know the code by its name, if there is one.
/// @throws UnsupportedError for a window on a device, or of 16 bits.
void check_code(const WindowIdentity& window, const Compression* compression,
                std::string_view call);
/// Checks that the window has a mutex of that rank.
void check_lockable(const WindowIdentity& window, int rank);

}  // namespace bluefog::ops
