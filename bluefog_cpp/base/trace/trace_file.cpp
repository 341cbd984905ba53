#include "bluefog_cpp/base/trace/trace_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <iterator>
#include <new>
#include <nlohmann/json.hpp>
#include <sstream>

#include "bluefog_cpp/error.hpp"

namespace bluefog {
namespace {

constexpr std::string_view kEnd = "\n]\n";
constexpr std::string_view kBetween = ",\n";

[[noreturn]] void refuse(const std::string& path, int error) {
  throw InvalidArgument(fmt::format("timeline (BLUEFOG_TIMELINE): cannot write {}: {}", path,
                                    std::generic_category().message(error)));
}

std::string contents_of(int file) {
  std::ifstream stream(fmt::format("/proc/self/fd/{}", file), std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

/// The name of the row that `line` names, if it is an event that does.
std::string row_named_by(std::string_view line) {
  if (line.find("\"thread_name\"") == std::string_view::npos) {
    return {};
  }
  if (line.ends_with(',')) {
    line.remove_suffix(1);
  }
  const auto event = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!event.is_object() || event.value("name", "") != "thread_name") {
    return {};
  }
  return event.value(nlohmann::json::json_pointer("/args/name"), "");
}

}  // namespace

TraceFile::TraceFile(const std::string& path, std::string_view head)
    : file_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)), owner_(::getpid()) {
  if (!file_) {
    refuse(path, errno);
  }
  // Two that wrote one file would leave no JSON. File systems without locks have no such guard.
  is_own_ = ::flock(file_.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
  if (!is_own_ || find_earlier_part(head)) {
    return;
  }
  // A device has no size to be cut to.
  if (::ftruncate(file_.get(), 0) != 0 && errno != EINVAL) {
    refuse(path, errno);
  }
  if (const std::error_code error = append(fmt::format("[{}", head))) {
    refuse(path, error.value());
  }
}

TraceFile::~TraceFile() {
  if (file_ && ::getpid() == owner_) {
    ::flock(file_.get(), LOCK_UN);  // forks of the process keep the file open
  }
}

bool TraceFile::find_earlier_part(std::string_view head) {
  const std::string begin = fmt::format("[{}", head);
  const off_t size = ::lseek(file_.get(), 0, SEEK_END);
  std::string found(begin.size(), '\0');
  if (size < static_cast<off_t>(begin.size() + kEnd.size()) ||
      ::pread(file_.get(), found.data(), found.size(), 0) != static_cast<ssize_t>(found.size()) ||
      found != begin) {
    return false;
  }
  const std::string text = contents_of(file_.get());
  if (!text.ends_with(kEnd)) {
    return false;
  }
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (std::string row = row_named_by(line); !row.empty()) {
      rows_.push_back(std::move(row));
    }
  }
  offset_ = text.size() - kEnd.size();
  return true;
}

std::size_t TraceFile::write(std::string_view text) const noexcept {
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = ::pwrite(file_.get(), text.data() + done, text.size() - done,
                                   static_cast<off_t>(offset_ + done));
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count <= 0) {
      break;
    }
    done += static_cast<std::size_t>(count);
  }
  return done;
}

std::error_code TraceFile::append(std::string_view events) noexcept {
  if (!is_own_ || is_full_) {
    return {};
  }
  // One write for both: nothing stands between the events and the end of the array.
  std::string text;
  try {
    text.reserve(events.size() + kEnd.size());
    text.append(events).append(kEnd);
  } catch (const std::bad_alloc&) {
    return {};  // the trace loses these
  }
  const std::size_t written = write(text);
  if (written == text.size()) {
    offset_ += events.size();
    return {};
  }
  const int error = errno != 0 ? errno : EIO;
  is_full_ = true;
  // Bytes that were written, or those of the former end, have room for the end.
  if (written >= kEnd.size()) {
    const std::size_t whole = events.rfind(kBetween, written - kEnd.size());
    offset_ += whole == std::string_view::npos ? 0 : whole;
  }
  if (offset_ > 0 && write(kEnd) == kEnd.size()) {
    [[maybe_unused]] const int ignored =
        ::ftruncate(file_.get(), static_cast<off_t>(offset_ + kEnd.size()));
  }
  return {error, std::generic_category()};
}

}  // namespace bluefog
