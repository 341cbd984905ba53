#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

namespace bluefog::c10d_backend {

/// torch's store at a place, reached by a thread of its own: a server that says nothing holds torch
/// up for ever, and a Python thread that comes back while its interpreter ends aborts the process.
/// The caller holds the interpreter's lock, which is released for the wait; signal handlers run.
///
/// @param keeps_it whether this process serves it.
/// @param timeout of torch, in whatever it waits for; zero: never. A little later the call ends.
/// @return null where there was no answer by then.
/// @throws std::runtime_error with the first line of torch's words.
[[nodiscard]] c10::intrusive_ptr<::c10d::TCPStore> open_tcp_store(
    const std::string& host, std::uint16_t port, bool keeps_it, std::chrono::milliseconds timeout);

}  // namespace bluefog::c10d_backend
