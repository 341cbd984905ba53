#include "tools/bftopo/progress_bar.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <string>

namespace bluefog::bftopo {

ProgressBar::ProgressBar(std::FILE* stream, std::int64_t total)
    : stream_(stream && isatty(fileno(stream)) != 0 ? stream : nullptr),
      total_(std::max<std::int64_t>(total, 1)) {}

void ProgressBar::update(std::int64_t done) {
  constexpr std::chrono::milliseconds kRefresh{200};
  constexpr std::int64_t kWidth = 30;
  const auto now = Clock::now();
  if (!stream_ || now - shown_ < kRefresh) {
    return;
  }
  shown_ = now;
  is_open_ = true;
  const std::chrono::duration<double> spent = now - start_;
  const auto left =
      static_cast<double>(total_ - done) / static_cast<double>(std::max<std::int64_t>(done, 1));
  const auto filled = static_cast<std::size_t>(kWidth * done / total_);
  fmt::print(stream_, "\r[{:.<{}}] {:3}% step {}/{} {:.0f} s left\x1b[K", std::string(filled, '#'),
             kWidth, 100 * done / total_, done, total_, spent.count() * left);
  std::fflush(stream_);
}

ProgressBar::~ProgressBar() {
  if (!is_open_) {
    return;
  }
  std::fputs("\r\x1b[K", stream_);
  std::fflush(stream_);
}

}  // namespace bluefog::bftopo
