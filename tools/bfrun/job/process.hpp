#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/bfrun/elastic/slots.hpp"

namespace bluefog::bfrun {

/// Exit codes that a shell uses for a program that cannot be started.
inline constexpr int kNotFoundCode = 127;
inline constexpr int kNotExecutableCode = 126;

/// Folders of a `PATH`; an empty entry is the current folder.
[[nodiscard]] std::vector<std::string> split_search_path(std::string_view search_path);

/// Whether `path` is a file that may be executed.
[[nodiscard]] bool is_program(const std::string& path);

/// Path of the running program, empty when unknown, and its folder.
[[nodiscard]] std::string own_path();
[[nodiscard]] std::string own_folder();

/// This machine's host name.
[[nodiscard]] std::string host_name();

/// 0 when `command` can be executed, else the code a shell ends with: 127 when there is no such
/// file, 126 when the file cannot be executed. A name without '/' is looked up in PATH.
[[nodiscard]] int check_program(const std::string& command, std::string_view search_path);

/// How a program ended.
struct ExitStatus {
  int code = 0;       ///< when it ended by itself
  int killed_by = 0;  ///< signal, else 0

  [[nodiscard]] static ExitStatus from_wait(int status);
  /// The code a shell gives: 128 + signal when killed.
  [[nodiscard]] int shell_code() const { return killed_by != 0 ? 128 + killed_by : code; }
};

/// The path of `command`, as a shell would find it; the command itself where there is none.
[[nodiscard]] std::string find_program(const std::string& command, std::string_view search_path);

/// The answer of a program that was asked something.
struct Answer {
  std::string output;  ///< what it printed, at most 64 KiB of it; empty when it cannot be started
  bool in_time = true;
  ExitStatus end = {};  ///< where it was in time
};

/// Runs a program, with nothing to read, to its end and returns its standard output. After `limit`
/// it is killed, with all that it has started.
/// @throws CommandError with 128 + signal when this process is told to end meanwhile.
[[nodiscard]] Answer capture_output(const std::vector<std::string>& words,
                                    std::chrono::milliseconds limit);

/// What a launcher whose ranks come and go is to do now (`bfrun --respawn`, `--max-np`).
struct RanksDue {
  std::vector<int> start = {};       ///< ranks to start again, which join the others
  std::vector<int> start_anew = {};  ///< ranks to start again, before all have come to the start
  std::vector<int> given_up = {};    ///< ranks that were to be started again, and are not
  std::vector<int> end = {};         ///< ranks that run again, and are the only ones left
  std::vector<Slots::NewRank> add =
      {};                       ///< ranks to start for the first time, which join the others
  std::vector<int> leave = {};  ///< ranks to be told to leave
  int left = 0;                 ///< ranks that have left, having no process
  std::vector<int> kill = {};   ///< ranks that were told so, and have not in time
  std::vector<std::string> lines = {};  ///< to print now
};

/// What becomes of a rank whose process is gone.
enum class RankFate {
  Over,         ///< its end is the rank's
  StartsAgain,  ///< it gets another process
  Absent,       ///< it was to join the others, has ended well without them, and so has failed
  Left,         ///< it was told to leave, and is no rank of the job any more
};

/// The caller's wishes about a child that is waited for.
struct ChildCare {
  /// Longest time until `before_sleep` is asked again; negative: when something happens.
  std::chrono::milliseconds sleep{-1};
  bool kill = false;  ///< send it SIGKILL now
  /// A child that fails may do so because of another one, which has begun to end before it.
  bool spare_others = false;
  RanksDue ranks = {};
};

/// The events of a running child.
struct ChildEvents {
  /// Each piece of the child's standard error.
  std::function<void(std::string_view)> on_stderr;
  /// Each signal that reached the calling process.
  std::function<void(int)> on_signal;
  /// Asked before each sleep.
  std::function<ChildCare()> before_sleep;
  /// A descriptor to watch besides, unless negative, and what to do when it is readable.
  int descriptor = -1;
  std::function<void()> on_readable = {};
  /// Each piece of standard error of a rank on another host.
  std::function<void(int rank, std::string_view)> on_far_stderr = {};
  /// Asked when the process of a rank is gone, once all of its words have been passed on: what
  /// becomes of the rank. It is started again when `ChildCare::ranks` says so.
  /// @param may_start_again false where the job ends.
  std::function<RankFate(int rank, bool has_failed, bool may_start_again)> on_rank_end = {};
};

/// Runs `words` as a child, with `environment`, to its end.
///
/// Standard input and output are the caller's. SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and
/// SIGUSR2 that reach the calling process are passed on, except one that the terminal sent to the
/// whole foreground group. The child gets SIGKILL if the caller dies. These signals stay blocked in
/// the calling thread, for good: meant for a program's main thread. Processes that the child has
/// started and left behind are killed after its end.
/// @throws TransportError when the child cannot be started; CommandError with 128 + signal when the
/// caller was told to end before.
[[nodiscard]] ExitStatus run_child(const std::vector<std::string>& words,
                                   const std::vector<std::string>& environment,
                                   const ChildEvents& events);

/// `words` as exec wants them; valid as long as `words`.
[[nodiscard]] std::vector<char*> to_pointers(const std::vector<std::string>& words);

/// Opens /dev/null for each of standard input, output and error that is closed, so that no other
/// descriptor gets their numbers.
void open_missing_streams();

/// Whether standard input is /dev/null.
[[nodiscard]] bool stdin_is_null();

/// Says a line in bfrun's name.
void say(const std::string& line);

/// Writes all of `text` to standard error; a closed one is no error. Returns whether all was taken.
bool write_to_stderr(std::string_view text);

}  // namespace bluefog::bfrun
