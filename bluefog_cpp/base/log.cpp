#include "bluefog_cpp/log.hpp"

#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <utility>

namespace bluefog {

namespace {

spdlog::level::level_enum to_spdlog(LogLevel level) noexcept {
  switch (level) {
    case LogLevel::Trace:
      return spdlog::level::trace;
    case LogLevel::Debug:
      return spdlog::level::debug;
    case LogLevel::Info:
      return spdlog::level::info;
    case LogLevel::Warning:
      return spdlog::level::warn;
    case LogLevel::Error:
      return spdlog::level::err;
    case LogLevel::Fatal:
      return spdlog::level::critical;
  }
  return spdlog::level::critical;
}

std::string pattern(const LogOptions& options) {
  std::string result = options.hide_time ? "" : "[%Y-%m-%d %H:%M:%S.%e] ";
  if (options.rank >= 0) {
    result += "[rank " + std::to_string(options.rank) + "] ";
  }
  return result + "[%l] %v";
}

}  // namespace

std::string_view to_string(LogLevel level) noexcept {
  switch (level) {
    case LogLevel::Trace:
      return "trace";
    case LogLevel::Debug:
      return "debug";
    case LogLevel::Info:
      return "info";
    case LogLevel::Warning:
      return "warning";
    case LogLevel::Error:
      return "error";
    case LogLevel::Fatal:
      return "fatal";
  }
  return "unknown";
}

struct Logger::Sink {
  explicit Sink(const LogOptions& options)
      : logger("bluefog", std::make_shared<spdlog::sinks::stderr_sink_mt>()) {
    logger.set_pattern(pattern(options));
    logger.set_level(to_spdlog(options.level));
  }

  spdlog::logger logger;
};

Logger::Logger(const LogOptions& options) : sink_(std::make_shared<Sink>(options)) {}

bool Logger::shows(LogLevel level) const noexcept {
  return sink_->logger.should_log(to_spdlog(level));
}

void Logger::log(LogLevel level, std::string_view message) const noexcept {
  try {
    sink_->logger.log(to_spdlog(level), spdlog::string_view_t(message.data(), message.size()));
  } catch (...) {  // a message that cannot be written must not become a failure of its own
  }
}

}  // namespace bluefog
