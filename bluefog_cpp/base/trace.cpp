#include "bluefog_cpp/base/trace.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "bluefog_cpp/base/error.hpp"

namespace bluefog {

namespace {

constexpr std::chrono::milliseconds kFlushPeriod(100);
constexpr std::size_t kFlushBytes = 64 << 10;

// A JSON string literal; bytes that are not UTF-8 become U+FFFD.
std::string quoted(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

int open_file(const std::string& path) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) {
    throw InvalidArgument(fmt::format("timeline: cannot write {}: {}", path, std::strerror(errno)));
  }
  return file;
}

}  // namespace

class Timeline::Writer {
 public:
  Writer(const std::string& prefix, int rank)
      : rank_(rank), file_(open_file(fmt::format("{}{}.json", prefix, rank))) {
    pending_ = fmt::format(
        R"([{{"name":"process_name","ph":"M","pid":{},"tid":0,"args":{{"name":"rank {}"}}}})", rank,
        rank);
    thread_ = std::thread([this] { run(); });
  }

  ~Writer() {
    if (::getpid() != owner_) {  // after a fork the thread exists in the parent only
      thread_.detach();
      ::close(file_);
      return;
    }
    {
      const std::lock_guard lock(mutex_);
      pending_ += "\n]\n";
      closing_ = true;
    }
    wake_.notify_one();
    thread_.join();
    ::close(file_);
  }

  void begin(std::string_view lane, std::string_view name) {
    const std::lock_guard lock(mutex_);
    Lane& row = lane_of(lane);
    ++row.running;
    append(fmt::format(R"("name":{},"ph":"B")", quoted(name)), row);
  }

  void end(std::string_view lane) {
    const std::lock_guard lock(mutex_);
    const auto found = lanes_.find(lane);
    if (found == lanes_.end() || found->second.running == 0) {
      return;
    }
    --found->second.running;
    append(R"("ph":"E")", found->second);
  }

  void mark(std::string_view lane, std::string_view name) {
    const std::lock_guard lock(mutex_);
    append(fmt::format(R"("name":{},"ph":"i","s":"t")", quoted(name)), lane_of(lane));
  }

 private:
  struct Lane {
    int number;
    int running = 0;
  };

  Lane& lane_of(std::string_view name) {
    const auto found = lanes_.find(name);
    if (found != lanes_.end()) {
      return found->second;
    }
    const int number = static_cast<int>(lanes_.size()) + 1;
    pending_ += fmt::format(
        ",\n{{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":{},\"tid\":{},\"args\":{{\"name\":{}}}}"
        "}",
        rank_, number, quoted(name));
    return lanes_.emplace(name, Lane{number}).first->second;
  }

  // Whole microseconds and nanoseconds are printed apart: a double has no room for both.
  void append(std::string_view fields, const Lane& lane) {
    const auto elapsed = std::chrono::steady_clock::now() - steady_start_;
    const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(
                        system_start_.time_since_epoch() + elapsed)
                        .count();
    const bool was_empty = pending_.empty();
    pending_ += fmt::format(",\n{{{},\"ts\":{}.{:03},\"pid\":{},\"tid\":{}}}", fields, ns / 1000,
                            ns % 1000, rank_, lane.number);
    if (was_empty || pending_.size() >= kFlushBytes) {
      wake_.notify_one();
    }
  }

  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      wake_.wait(lock, [this] { return !pending_.empty() || closing_; });
      wake_.wait_for(lock, kFlushPeriod,
                     [this] { return pending_.size() >= kFlushBytes || closing_; });
      const std::string text = std::exchange(pending_, {});
      const bool last = closing_;
      lock.unlock();
      write_all(text);
      lock.lock();
      if (last) {
        return;
      }
    }
  }

  // A full disk must not end the run: what cannot be written is dropped.
  void write_all(std::string_view text) const {
    while (!text.empty()) {
      const ssize_t written = ::write(file_, text.data(), text.size());
      if (written < 0 && errno == EINTR) {
        continue;
      }
      if (written <= 0) {
        return;
      }
      text.remove_prefix(static_cast<std::size_t>(written));
    }
  }

  const int rank_;
  const int file_;
  const pid_t owner_ = ::getpid();
  const std::chrono::system_clock::time_point system_start_ = std::chrono::system_clock::now();
  const std::chrono::steady_clock::time_point steady_start_ = std::chrono::steady_clock::now();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::string pending_;
  std::map<std::string, Lane, std::less<>> lanes_;
  bool closing_ = false;
  std::thread thread_;
};

Timeline::Timeline(const std::string& prefix, int rank)
    : writer_(std::make_unique<Writer>(prefix, rank)) {}

Timeline::~Timeline() = default;

void Timeline::begin(std::string_view lane, std::string_view name) { writer_->begin(lane, name); }

void Timeline::end(std::string_view lane) { writer_->end(lane); }

void Timeline::mark(std::string_view lane, std::string_view name) { writer_->mark(lane, name); }

void Span::open(Timeline* timeline, std::string_view lane, std::string_view name) noexcept {
  try {
    lane_ = lane;
    timeline->begin(lane, name);
    timeline_ = timeline;
  } catch (...) {  // out of memory: the trace loses a span, the operation goes on
  }
}

void Span::close() noexcept {
  try {
    timeline_->end(lane_);
  } catch (...) {
  }
}

}  // namespace bluefog
