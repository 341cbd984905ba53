#pragma once

#include <chrono>
#include <exception>
#include <thread>

namespace bluefog {

/// The body of a thread that runs the handlers of `context`, until it is stopped or has none left. A
/// handler that throws, as out of memory, costs what it was for, and not the process.
/// @tparam Context `asio::io_context`.
template <typename Context>
void run_to_end(Context& context) {
  constexpr std::chrono::milliseconds kPause(10);
  while (true) {
    try {
      context.run();
      return;
    } catch (const std::exception&) {
      std::this_thread::sleep_for(kPause);
    }
  }
}

}  // namespace bluefog
