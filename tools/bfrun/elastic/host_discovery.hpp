#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tools/bfrun/job/descriptor.hpp"
#include "tools/bfrun/job/process.hpp"
#include "tools/bfrun/start/hosts.hpp"

namespace bluefog::bfrun {

/// The program of `--host-discovery`, and the hosts that its answer names.
class DiscoveryScript {
 public:
  /// @param text program and arguments, split as a shell does.
  /// @param least fewer slots than these are no answer, once ranks run.
  /// @throws UsageError for no program; CommandError for one that cannot be executed.
  DiscoveryScript(const std::string& text, int least, std::string_view search_path);

  [[nodiscard]] const std::vector<std::string>& words() const { return words_; }
  [[nodiscard]] int least() const { return least_; }

  /// The hosts that a run of it has named. This machine is "localhost", whatever name it has there.
  /// @throws UsageError for an answer that cannot be used: a code other than 0, a signal, what it
  ///   printed.
  [[nodiscard]] std::vector<HostSlots> read(const ExitStatus& end, const std::string& output) const;
  /// The words on a run that has taken `kLongestRun`.
  [[nodiscard]] std::string too_long() const;

  /// Between two runs, from the end of one to the start of the next.
  static constexpr std::chrono::milliseconds kPause{1000};
  static constexpr std::chrono::milliseconds kLongestRun{10'000};
  static constexpr std::size_t kMostBytes = 65536;

 private:
  std::string name_;
  std::vector<std::string> words_;
  int least_;
};

/// Asks the program until it names enough slots, `limit` at most.
/// @throws UsageError for its first answer that cannot be used, and where there are still too few;
///   CommandError with 128 + signal when this process is told to end meanwhile.
[[nodiscard]] std::vector<HostSlots> await_slots(const DiscoveryScript& script,
                                                 std::chrono::seconds limit);

/// Runs the program again and again beside a job. An answer that cannot be used changes nothing, and
/// is said once.
class HostDiscovery {
 public:
  using Clock = std::chrono::steady_clock;

  /// @param on_answer receives each answer that differs from the one before.
  /// @param on_problem receives each problem that differs from the one before.
  HostDiscovery(DiscoveryScript script, std::vector<HostSlots> first,
                std::function<void(const std::vector<HostSlots>&)> on_answer,
                std::function<void(const std::string&)> on_problem, Clock::time_point now);
  ~HostDiscovery();
  HostDiscovery(const HostDiscovery&) = delete;
  HostDiscovery& operator=(const HostDiscovery&) = delete;

  /// Readable when the program prints; −1 while it does not run.
  [[nodiscard]] int descriptor() const { return output_.get(); }
  /// Takes what it has printed. Does not block.
  void read();
  /// The time until there is something to do; negative: nothing but to wait for its end.
  [[nodiscard]] std::chrono::milliseconds time_left(Clock::time_point now) const;
  /// Starts the program when it is due, and ends one that takes too long.
  void act(Clock::time_point now);
  /// A child of this process has ended; whether it was this one.
  bool take_end(pid_t process, const ExitStatus& end, Clock::time_point now);

 private:
  void start(Clock::time_point now);
  void kill_group() const;
  void tell(const std::string& problem);

  DiscoveryScript script_;
  std::vector<HostSlots> last_;
  std::function<void(const std::vector<HostSlots>&)> on_answer_;
  std::function<void(const std::string&)> on_problem_;
  std::string last_problem_;
  pid_t process_ = -1;
  bool is_too_late_ = false;
  Clock::time_point due_;  ///< the next start, or the longest run's end
  Descriptor output_;
  std::string said_;
};

}  // namespace bluefog::bfrun
