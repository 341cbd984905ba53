#include "bluefog_cpp/base/trace/trace.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

#include "bluefog_cpp/base/trace/trace_file.hpp"

namespace bluefog {

namespace {

/// Activities that still run are in the file within 0.1 s, on a busy machine too.
constexpr std::chrono::milliseconds kFlushPeriod(50);

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

/// This process among all that have run on its host: its number, and when it started.
std::string process_identity() {
  std::ifstream file("/proc/self/stat");
  const std::string stat{std::istreambuf_iterator<char>(file), {}};
  // Fields are counted from behind the program's name, the second one, which may have blanks.
  std::istringstream fields(stat.substr(std::min(stat.rfind(')') + 1, stat.size())));
  std::string start;
  for (int field = 3; field <= 22; ++field) {
    fields >> start;
  }
  return fmt::format("{} {}", ::getpid(), start);
}

/// The first event, by which a later timeline of this process knows the file again.
std::string head_of(int rank) {
  return fmt::format(
      R"({{"name":"process_name","ph":"M","pid":{},"tid":0,"args":{{"name":"rank {}","process":"{}"}}}})",
      rank, rank, process_identity());
}

}  // namespace

class Timeline::Writer {
 public:
  Writer(const std::string& prefix, int rank, Logger log)
      : rank_(rank),
        log_(std::move(log)),
        path_(fmt::format("{}{}.json", prefix, rank)),
        file_(path_, head_of(rank)) {
    if (!file_.is_own()) {
      log_.warning(fmt::format(
          "timeline (BLUEFOG_TIMELINE): {} is being written by another context; this one writes none",
          path_));
    }
    for (const std::string& name : file_.take_rows()) {
      add_row(lane_of(name));
    }
    thread_ = std::thread([this] { run(); });
  }

  ~Writer() {
    if (is_fork()) {  // the thread exists in the parent only
      thread_.detach();
      return;
    }
    {
      const std::lock_guard lock(mutex_);
      quietly([this] { flush(); });
      closing_ = true;
    }
    wake_.notify_one();
    thread_.join();
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
      append_end(*row, Clock::now());
    }
  }

  void mark(std::string_view lane, std::string_view name) {
    const std::lock_guard lock(mutex_);
    Row* const running = find_running(lane);
    append(fmt::format(R"("name":{},"ph":"i","s":"t")", quoted(name)),
           running != nullptr ? *running : free_row(lane), Clock::now());
    flush();
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
    while (row.running > 0) {
      append_end(row, now);
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
      append_end(row, when);
    }
  }

  void add(int number, std::string_view name, Clock::time_point from, Clock::time_point to) {
    const std::lock_guard lock(mutex_);
    const auto ns =
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::max(to, from) - from).count();
    const Row& row = row_of(number);
    append(fmt::format(R"("name":{},"ph":"X","dur":{}.{:03})", quoted(name), ns / 1000, ns % 1000),
           row, from);
    if (row.running == 0) {
      flush();
    }
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
    const std::string name =
        rows.empty() ? std::string(lane) : fmt::format("{} ({})", lane, rows.size() + 1);
    Row& row = add_row(lane);
    write_soon(fmt::format(
        ",\n{{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":{},\"tid\":{},\"args\":{{\"name\":{}}}}"
        "}",
        rank_, row.number, quoted(std::string_view(name))));
    return row;
  }

  /// Another row of that name, with the next number.
  Row& add_row(std::string_view lane) {
    const auto found = lanes_.find(lane);
    auto& rows =
        found != lanes_.end() ? found->second : lanes_.emplace(lane, SameName{}).first->second;
    rows.push_back(std::make_unique<Row>(Row{.number = static_cast<int>(rows_.size()) + 1}));
    rows_.push_back(rows.back().get());
    return *rows.back();
  }

  /// The lane of a row that is called `name` in the file: "x" for "x (2)" where that is its second.
  [[nodiscard]] std::string_view lane_of(std::string_view name) const {
    const std::string_view lane = name.substr(0, name.rfind(" ("));
    const auto found = lanes_.find(lane);
    return found != lanes_.end() && name == fmt::format("{} ({})", lane, found->second.size() + 1)
               ? lane
               : name;
  }

  void append_begin(std::string_view name, const Row& row) {
    append(fmt::format(R"("name":{},"ph":"B")", quoted(name)), row, Clock::now());
  }

  void append_end(Row& row, Clock::time_point when) {
    --row.running;
    append(R"("ph":"E")", row, when);
    if (row.running == 0) {
      flush();  // whatever ends the process from here on
    }
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
    pending_ += text;
    if (is_idle_) {  // else the thread looks by itself, within `kFlushPeriod`
      is_idle_ = false;
      wake_.notify_one();
    }
  }

  void run() {
    std::unique_lock lock(mutex_);
    while (!closing_) {
      is_idle_ = pending_.empty();
      wake_.wait(lock, [this] { return !is_idle_ || closing_; });
      wake_.wait_for(lock, kFlushPeriod, [this] { return closing_; });
      flush();
    }
  }

  /// A full disk must not end the run: what cannot be written is dropped.
  void flush() {
    if (is_fork()) {
      pending_.clear();  // the file is the parent's
    }
    if (pending_.empty()) {
      return;
    }
    const std::error_code error = file_.append(pending_);
    pending_.clear();
    if (error) {
      log_.warning(fmt::format(
          "timeline (BLUEFOG_TIMELINE): cannot write {}: {}; what happens from here on is not in it",
          path_, error.message()));
    }
  }

  [[nodiscard]] bool is_fork() const { return ::getpid() != owner_; }

  const int rank_;
  const Logger log_;
  const std::string path_;
  TraceFile file_;
  const pid_t owner_ = ::getpid();
  const std::chrono::system_clock::time_point system_start_ = std::chrono::system_clock::now();
  const Clock::time_point steady_start_ = Clock::now();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::string pending_;
  std::map<std::string, SameName, std::less<>> lanes_;
  /// The rows by number, from 1 on.
  std::vector<Row*> rows_;
  /// Whether the thread sleeps until there is something.
  bool is_idle_ = false;
  bool closing_ = false;
  std::thread thread_;
};

Timeline::Timeline(const std::string& prefix, int rank, Logger log)
    : writer_(std::make_unique<Writer>(prefix, rank, std::move(log))) {}

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
