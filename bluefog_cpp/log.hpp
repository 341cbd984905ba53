#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace bluefog {

/// How much a message matters; `BLUEFOG_LOG_LEVEL` is the lowest that is shown.
enum class LogLevel {
  Trace,    ///< details of single calls; the library itself has none of these
  Debug,    ///< choices that the library makes
  Info,     ///< the course of a run
  Warning,  ///< a state that the user may want to change; the default of `BLUEFOG_LOG_LEVEL`
  Error,    ///< a failure that no exception tells of
  Fatal,    ///< a failure after which the process ends; the library itself has none of these
};

/// "trace", "debug", "info", "warning", "error", "fatal"; "unknown" for other numbers.
[[nodiscard]] std::string_view to_string(LogLevel level) noexcept;

/// The lowest level that a `Logger` shows, and the prefix of its lines.
struct LogOptions {
  /// Lower ones are left out.
  LogLevel level = LogLevel::Warning;
  /// True leaves the time out of each line (`BLUEFOG_LOG_HIDE_TIME`).
  bool hide_time = false;
  /// Rank in each line's prefix; negative leaves it out.
  int rank = -1;
};

/// Writes lines `[time] [rank r] [level] message` to standard error.
///
/// A value that is cheap to copy: copies share one sink. It belongs to whoever
/// made it; there is no process-wide logger. Any thread may call it. Nothing
/// it does throws.
class Logger {
 public:
  /// A logger with a sink of its own; copies share it.
  explicit Logger(const LogOptions& options = {});

  /// True if messages of `level` are shown: ask before building a costly one.
  [[nodiscard]] bool shows(LogLevel level) const noexcept;

  /// Writes a line where `level` is shown; one that cannot be written is dropped.
  void log(LogLevel level, std::string_view message) const noexcept;

  /// @name Lines of one level
  /// @{

  /// `log` with that level.
  void trace(std::string_view message) const noexcept { log(LogLevel::Trace, message); }
  void debug(std::string_view message) const noexcept { log(LogLevel::Debug, message); }
  void info(std::string_view message) const noexcept { log(LogLevel::Info, message); }
  void warning(std::string_view message) const noexcept { log(LogLevel::Warning, message); }
  void error(std::string_view message) const noexcept { log(LogLevel::Error, message); }
  void fatal(std::string_view message) const noexcept { log(LogLevel::Fatal, message); }
  /// @}

 private:
  struct Sink;
  std::shared_ptr<Sink> sink_;
};

}  // namespace bluefog
