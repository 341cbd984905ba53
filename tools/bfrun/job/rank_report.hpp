#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/bfrun/rank/binding.hpp"

namespace bluefog::bfrun {

/// The report of one rank's watcher to bfrun, sent when the rank starts and when it ends. A rank
/// that announces its exit (base/exit_note.hpp) exits in one report and ends in another; the first
/// counts.
///
/// Reports travel on the line to bfrun (rank_line.hpp), and from other machines on standard error,
/// the one channel that mpirun forwards from every host: a record separator, `bfrun:KEY:` and the
/// fields, a record separator, a line end. KEY is drawn anew for each job, so that what a program
/// prints is never taken for a report.
struct RankReport {
  enum class Kind {
    Started,
    Joining,   ///< the program has begun to join the other ranks
    Departed,  ///< the program has left the others, who go on, before the end of their work
    Leaving,   ///< the program has begun to end, with a code that it does not know yet
    Exiting,   ///< the program exits, and may wait for the others before its process is gone
    Ended
  };

  Kind kind = Kind::Started;
  int rank = 0;
  int local_rank = 0;
  int local_size = 1;
  int pid = 0;               ///< of the command, not of its watcher
  Placement placement;       ///< Started: what the rank got
  int exit_code = 0;         ///< Exiting, Ended: of the command, 0 when a signal killed it
  int killed_by = 0;         ///< Ended: the signal that killed it, else 0
  bool told_to_end = false;  ///< Ended: mpirun had sent it a signal that ends programs
  /// Leaving, Exiting, Ended: since when, in microseconds since 1970 by the clock of its host.
  std::int64_t ended_at_us = 0;
  std::string host;
  bool came_by_line = false;  ///< from this machine, past mpirun; not part of the bytes

  [[nodiscard]] bool failed() const { return exit_code != 0 || killed_by != 0; }
  /// As a shell gives it.
  [[nodiscard]] int shell_code() const;
  bool operator==(const RankReport&) const = default;
};

/// The bytes of one report. Never longer than 512, so a pipe takes it in one piece.
[[nodiscard]] std::string encode(const RankReport& report, std::string_view key);

/// Takes reports out of a stream that also carries other text.
class ReportFilter {
 public:
  explicit ReportFilter(std::string_view key);

  /// Reads the next bytes of the stream and returns those that belong to others, in order. A report
  /// may be cut anywhere between two calls. Bytes that are no whole and valid report go through.
  [[nodiscard]] std::string feed(std::string_view bytes);

  /// Reports completed since the last call.
  [[nodiscard]] std::vector<RankReport> take_reports();

  /// Bytes still held back when the stream ends.
  [[nodiscard]] std::string finish();

 private:
  std::string start_;  ///< what a report begins with
  std::string held_;   ///< a report, as far as it has come
  bool skip_line_end_ = false;
  std::vector<RankReport> reports_;
};

/// One sentence that names the rank and how it ended, such as
/// `rank 2 on host a (pid 17) was killed by signal 9 (SIGKILL)`.
[[nodiscard]] std::string describe_end(const RankReport& report);

/// The sentence on a rank that has said that it has started, and not how it ended.
/// @param reason for that, in words
[[nodiscard]] std::string describe_silent_end(const RankReport& start, std::string_view reason);

/// "9 (SIGKILL)".
[[nodiscard]] std::string name_of_signal(int number);

}  // namespace bluefog::bfrun
