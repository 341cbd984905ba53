#pragma once

#include <signal.h>
#include <sys/signalfd.h>

#include <chrono>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tools/bfrun/job/descriptor.hpp"

namespace bluefog::bfrun {

/// Whether a program sends itself this signal by a mistake of its own.
[[nodiscard]] bool is_crash(int number);

/// Whether the default of `signal_number` is what users send to end a program.
[[nodiscard]] bool ends_programs(int signal_number);

/// The signals by which users ask bfrun for one rank more and for one fewer (`--max-np`).
[[nodiscard]] int more_ranks_signal();
[[nodiscard]] int fewer_ranks_signal();

/// Some senders signal a process and its group: equal signals within a moment count as one.
class SignalsOnce {
 public:
  bool is_new(int number) {
    constexpr std::chrono::milliseconds kSame{100};
    const auto now = std::chrono::steady_clock::now();
    const auto [last, is_first] = last_.emplace(number, now);
    return is_first || now - std::exchange(last->second, now) >= kSame;
  }

 private:
  std::map<int, std::chrono::steady_clock::time_point> last_;
};

/// The signals that bfrun passes on to mpirun, and SIGCHLD, taken one by one instead of at any
/// time. They stay blocked in the calling thread for good, so that none is lost between two
/// objects: meant for a program's main thread.
class SignalWatch {
 public:
  /// @throws TransportError when the system has no descriptor left.
  SignalWatch();

  /// Readable when there is a signal.
  [[nodiscard]] int descriptor() const { return descriptor_.get(); }
  /// The mask from before the process's first object, for children.
  [[nodiscard]] static const sigset_t& old_mask();
  /// The signals that have come. Does not block.
  [[nodiscard]] std::vector<signalfd_siginfo> take() const;
  /// @throws CommandError with 128 + signal when one waits that ends programs: `program` is not to
  /// be started any more.
  void refuse_start(const std::string& program) const;

 private:
  Descriptor descriptor_;
};

}  // namespace bluefog::bfrun
