#pragma once

#include <cstddef>
#include <functional>
#include <string_view>

#include "bluefog_cpp/context.hpp"
#include "ops/compression.hpp"

namespace bluefog::optimizers {

/// The calls by which ranks learn, before they use the codes of a round, whether all can decode
/// them: 1 where the code may throw, else 0.
[[nodiscard]] inline std::size_t decoding_calls(const ops::Compression& compression) {
  return compression.may_throw() ? 1 : 0;
}

/// Collective where `decoding_calls` is 1; else does nothing. Runs `decode`, which decodes all codes
/// of the round and changes nothing, and tells the other ranks whether it has thrown.
/// @param call for messages: "choco, round 3".
/// @throws what `decode` throws; PeerFailure with rank, code and reason where another rank's has.
void try_decoding(Context& context, const ops::Compression& compression, std::string_view call,
                  const std::function<void()>& decode);

}  // namespace bluefog::optimizers
