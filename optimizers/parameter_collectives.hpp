#pragma once

#include <string_view>

#include "bluefog_cpp/context.hpp"
#include "optimizers/parameter.hpp"

namespace bluefog::optimizers {

/// Collective. Every rank's tensors become those of `root`: before training, so that all ranks
/// start from the same model. Any real dtype; the memory layout may differ between ranks.
/// All ranks have as many tensors, with the same names, shapes and dtypes.
/// Cost: one broadcast for each tensor, all in flight together.
/// @throws InvalidArgument if `root` is not a rank, MismatchError if names, shapes or dtypes differ
///   between ranks (names the first one); a rank that sent more hears of it in a later call.
/// @param call the user's call that this is a part of, for messages; empty: this is the user's
///   call.
/// Source: BlueFog's `broadcast_parameters`.
void broadcast(Context& context, const NamedTensors& tensors, int root, std::string_view call = {});

/// `broadcast` of the module's parameters, frozen ones included, after comparing them: where they
/// differ, in number too, all ranks get the MismatchError and stay in step.
/// Cost besides: one all-gather of 16 bytes.
void broadcast_parameters(Context& context, const torch::nn::Module& module, int root = 0);

/// `broadcast` of the module's buffers, compared as by `broadcast_parameters`.
void broadcast_buffers(Context& context, const torch::nn::Module& module, int root = 0);

/// Collective. Every floating-point tensor becomes its mean over all ranks, the same bits on each:
/// x_i ← (1/n) Σ_j x_j. Tensors of other dtypes are left alone.
/// Cost, `call` and errors as `broadcast`, with one allreduce for each tensor.
void average_floating(Context& context, const NamedTensors& tensors, std::string_view call = {});

/// `average_floating` of the module's parameters, compared as by `broadcast_parameters`: one model
/// for all ranks, at the end of training.
/// Source: BlueFog's `allreduce_parameters`.
void allreduce_parameters(Context& context, const torch::nn::Module& module);

}  // namespace bluefog::optimizers
