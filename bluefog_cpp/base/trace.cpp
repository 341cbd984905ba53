#include "bluefog_cpp/base/trace.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>
#include <vector>

#include "bluefog_cpp/error.hpp"

namespace bluefog {

namespace {

/// A span is in the file within 0.1 s, on a busy machine too.
constexpr std::chrono::milliseconds kFlushPeriod(50);
constexpr std::size_t kFlushBytes = 64 << 10;

// A JSON string literal; bytes that are not UTF-8 become U+FFFD.
std::string quoted(std::string_view text) {
  const auto is_plain = [](char c) { return c >= ' ' && c <= '~' && c != '"' && c != '\\'; };
  if (std::ranges::all_of(text, is_plain)) {
    return fmt::format("\"{}\"", text);
  }
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Out of memory: the trace loses a span, the operation goes on.
template <typename Write>
void quietly(const Write& write) noexcept {
  try {
    write();
  } catch (...) {
  }
}

int open_file(const std::string& path) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) {
    throw InvalidArgument(fmt::format("timeline (BLUEFOG_TIMELINE): cannot write {}: {}", path,
                                      std::strerror(errno)));
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
    Row* const running = find_running(lane);
    Row& row = running != nullptr ? *running : free_row(lane);
    ++row.running;
    append_begin(name, row);
  }

  void end(std::string_view lane) {
    const std::lock_guard lock(mutex_);
    if (Row* const row = find_running(lane)) {
      --row->running;
      append(R"("ph":"E")", *row, Clock::now());
    }
  }

  void mark(std::string_view lane, std::string_view name) {
    const std::lock_guard lock(mutex_);
    Row* const running = find_running(lane);
    append(fmt::format(R"("name":{},"ph":"i","s":"t")", quoted(name)),
           running != nullptr ? *running : free_row(lane), Clock::now());
  }

  int take(std::string_view lane) {
    const std::lock_guard lock(mutex_);
    Row& row = free_row(lane);
    row.is_taken = true;
    return row.number;
  }

  void give_back(int number) {
    const std::lock_guard lock(mutex_);
    Row& row = row_of(number);
    const auto now = Clock::now();
    for (; row.running > 0; --row.running) {
      append(R"("ph":"E")", row, now);
    }
    row.is_taken = false;
  }

  void begin(int number, std::string_view name) {
    const std::lock_guard lock(mutex_);
    Row& row = row_of(number);
    ++row.running;
    append_begin(name, row);
  }

  void end(int number, Clock::time_point when) {
    const std::lock_guard lock(mutex_);
    if (Row& row = row_of(number); row.running > 0) {
      --row.running;
      append(R"("ph":"E")", row, when);
    }
  }

  void add(int number, std::string_view name, Clock::time_point from, Clock::time_point to) {
    const std::lock_guard lock(mutex_);
    const auto ns =
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::max(to, from) - from).count();
    append(fmt::format(R"("name":{},"ph":"X","dur":{}.{:03})", quoted(name), ns / 1000, ns % 1000),
           row_of(number), from);
  }

 private:
  using Clock = Timeline::Clock;

  struct Row {
    int number = 0;
    int running = 0;
    /// Whether a `TraceRow` has taken the row.
    bool is_taken = false;
  };
  using SameName = std::vector<std::unique_ptr<Row>>;

  Row& row_of(int number) { return *rows_[static_cast<std::size_t>(number - 1)]; }

  /// The row on which spans of the lane itself run, or null.
  Row* find_running(std::string_view lane) {
    const auto found = lanes_.find(lane);
    if (found == lanes_.end()) {
      return nullptr;
    }
    for (const auto& row : found->second) {
      if (!row->is_taken && row->running > 0) {
        return row.get();
      }
    }
    return nullptr;
  }

  /// The first row of that name that is not taken and on which nothing runs.
  Row& free_row(std::string_view lane) {
    const auto found = lanes_.find(lane);
    auto& rows =
        found != lanes_.end() ? found->second : lanes_.emplace(lane, SameName{}).first->second;
    for (const auto& row : rows) {
      if (!row->is_taken && row->running == 0) {
        return *row;
      }
    }
    const int number = static_cast<int>(rows_.size()) + 1;
    const std::string name =
        rows.empty() ? std::string(lane) : fmt::format("{} ({})", lane, rows.size() + 1);
    write_soon(fmt::format(
        ",\n{{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":{},\"tid\":{},\"args\":{{\"name\":{}}}}"
        "}",
        rank_, number, quoted(std::string_view(name))));
    rows.push_back(std::make_unique<Row>(Row{.number = number}));
    rows_.push_back(rows.back().get());
    return *rows.back();
  }

  void append_begin(std::string_view name, const Row& row) {
    append(fmt::format(R"("name":{},"ph":"B")", quoted(name)), row, Clock::now());
  }

  // Whole microseconds and nanoseconds are printed apart: a double has no room for both.
  void append(std::string_view fields, const Row& row, Clock::time_point when) {
    const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(
                        system_start_.time_since_epoch() + (when - steady_start_))
                        .count();
    write_soon(fmt::format(",\n{{{},\"ts\":{}.{:03},\"pid\":{},\"tid\":{}}}", fields, ns / 1000,
                           ns % 1000, rank_, row.number));
  }

  void write_soon(std::string_view text) {
    const bool was_empty = pending_.empty();
    pending_ += text;
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
  const Clock::time_point steady_start_ = Clock::now();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::string pending_;
  std::map<std::string, SameName, std::less<>> lanes_;
  /// The rows by number, from 1 on.
  std::vector<Row*> rows_;
  bool closing_ = false;
  std::thread thread_;
};

Timeline::Timeline(const std::string& prefix, int rank)
    : writer_(std::make_unique<Writer>(prefix, rank)) {}

Timeline::~Timeline() = default;

void Timeline::begin(std::string_view lane, std::string_view name) { writer_->begin(lane, name); }

void Timeline::end(std::string_view lane) { writer_->end(lane); }

void Timeline::mark(std::string_view lane, std::string_view name) { writer_->mark(lane, name); }

std::string activity_name(std::string_view call) {
  std::string name(call);
  std::ranges::transform(name, name.begin(), [](char c) {
    return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  });
  return name;
}

void TraceRow::take(Timeline& timeline, std::string_view lane) noexcept {
  quietly([&] {
    number_ = timeline.writer_->take(lane);
    timeline_ = &timeline;
  });
}

void TraceRow::give_back() noexcept {
  quietly([&] { std::exchange(timeline_, nullptr)->writer_->give_back(number_); });
}

void TraceRow::begin(std::string_view name) noexcept {
  if (timeline_ != nullptr) {
    quietly([&] { timeline_->writer_->begin(number_, name); });
  }
}

void TraceRow::end(Timeline::Clock::time_point when) noexcept {
  if (timeline_ != nullptr) {
    quietly([&] { timeline_->writer_->end(number_, when); });
  }
}

void TraceRow::add(std::string_view name, Timeline::Clock::time_point from,
                   Timeline::Clock::time_point to) noexcept {
  if (timeline_ != nullptr) {
    quietly([&] { timeline_->writer_->add(number_, name, from, to); });
  }
}

void Span::open(Timeline* timeline, std::string_view lane, std::string_view name) noexcept {
  quietly([&] {
    lane_ = lane;
    timeline->begin(lane, name);
    timeline_ = timeline;
  });
}

void Span::close() noexcept {
  quietly([&] { timeline_->end(lane_); });
}

}  // namespace bluefog
