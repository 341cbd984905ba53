#pragma once

#include "bluefog_cpp/buffer_view.hpp"
#include "bluefog_cpp/context.hpp"
#include "bluefog_cpp/work.hpp"

/// @file
/// Messages from one rank to one other. Only these two make the calls, each when it likes: the k-th
/// message of a tag goes to the k-th receipt of that tag, in no order with other tags, other
/// directions and other calls of the context.
///
/// Any dtype, the same count and dtype on both sides: else the receiver gets MismatchError, and the
/// sender too, in its next call where it is over by then. Buffers on the CPU. Messages are in no
/// part of `Context::resync`: those that have been sent by then are received after it.
namespace bluefog::ops {

/// Sends `buffer` to rank `target`. The work is complete when the values have been copied, whether
/// the other rank has come or not; inside a host a sender waits while 64 MiB for that rank are on
/// their way. Cost: one message.
/// @param tag 0 or more.
/// @throws InvalidArgument for a null or negative buffer, a target that is no other rank or a
///   negative tag, UnsupportedError off the CPU. `Work::wait` throws PeerFailure, TimeoutError.
[[nodiscard]] Work send_nonblocking(Context& context, ConstBufferView buffer, int target, int tag);

/// Fills `buffer` with the next message of that tag from rank `source`.
/// @throws as `send_nonblocking`. `Work::wait` throws MismatchError, PeerFailure also where the
///   sender gave the message up, TimeoutError. A message whose receipt has failed is dropped when
///   it comes.
[[nodiscard]] Work receive_nonblocking(Context& context, BufferView buffer, int source, int tag);

}  // namespace bluefog::ops
