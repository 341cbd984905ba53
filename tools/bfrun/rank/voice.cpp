#include "tools/bfrun/rank/voice.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include "tools/bfrun/job/process.hpp"

namespace bluefog::bfrun {
namespace {

/// Writes a report in one piece, once the pipe is empty of what the rank wrote before, so that
/// mpirun forwards it in one piece too.
bool send_on_stderr(const RankReport& report, const std::string& key) {
  for (int attempt = 0; attempt < 100; ++attempt) {
    int waiting = 0;
    if (ioctl(STDERR_FILENO, FIONREAD, &waiting) != 0 || waiting == 0) {
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return write_to_stderr(encode(report, key)) || errno != EPIPE;
}

}  // namespace

Voice::Voice(std::string key, const Places& places, int rank)
    : key_(std::move(key)), line_(places.line, key_) {
  if (!key_.empty() && line_.state() == RankLineEnd::State::Elsewhere) {
    host_line_ = HostLineEnd(places.host_line, rank);
  }
}

bool Voice::send(const RankReport& report) const {
  if (key_.empty()) {
    return true;
  }
  if (is_orphaned()) {
    return false;
  }
  return line_.state() == RankLineEnd::State::Connected ? line_.send(report, key_)
                                                        : send_on_stderr(report, key_);
}

}  // namespace bluefog::bfrun
