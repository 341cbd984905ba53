#pragma once

#include <filesystem>
#include <fstream>
#include <nlohmann/json_fwd.hpp>

namespace bluefog::examples {

/// A file of JSON objects, one a line, written at once, so that a run can be watched and a run that
/// breaks off leaves its figures so far.
class MetricsFile {
 public:
  /// An empty path writes nothing.
  /// @param appends keeps what the file has (resumed runs); else it is emptied.
  /// @throws InvalidArgument if the file cannot be opened.
  enum class Mode { Replace, Append };
  MetricsFile(const std::filesystem::path& path, Mode mode);

  /// Appends one line. @throws Error if it cannot be written.
  void write(const nlohmann::json& line);

 private:
  std::filesystem::path path_;
  std::ofstream file_;
};

}  // namespace bluefog::examples
