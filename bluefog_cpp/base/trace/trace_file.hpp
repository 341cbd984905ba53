#pragma once

#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "bluefog_cpp/base/files/unique_fd.hpp"

namespace bluefog {

/// The file of a timeline: a JSON array, one event a line, that is whole after every write, however
/// its process ends. A file that this process has begun earlier is gone on with.
///
/// One thread at a time.
class TraceFile {
 public:
  /// @param head the first event; names the process, so that its other files begin alike.
  /// @throws InvalidArgument naming the file and the reason if it cannot be written.
  TraceFile(const std::string& path, std::string_view head);
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;
  ~TraceFile();

  /// False if another timeline is writing the file: `append` then does nothing.
  [[nodiscard]] bool is_own() const noexcept { return is_own_; }

  /// The names of the rows that an earlier timeline of this process has written, from number 1 on.
  [[nodiscard]] std::vector<std::string> take_rows() noexcept { return std::move(rows_); }

  /// @param events each begins with ",\n".
  /// @return the reason, once, why they are not all there. Events that have found room stay, later
  ///   ones are dropped, and the array remains whole.
  [[nodiscard]] std::error_code append(std::string_view events) noexcept;

 private:
  /// Bytes of `text` that have found a place from `offset_` on.
  [[nodiscard]] std::size_t write(std::string_view text) const noexcept;
  [[nodiscard]] bool find_earlier_part(std::string_view head);

  shm::UniqueFd file_;
  const int owner_;
  /// The place of the array's closing bracket.
  std::size_t offset_ = 0;
  bool is_own_ = false;
  bool is_full_ = false;
  std::vector<std::string> rows_;
};

}  // namespace bluefog
