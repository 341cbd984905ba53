#pragma once

#include <string>
#include <utility>

#include "tools/bfrun/job/host_line.hpp"
#include "tools/bfrun/job/rank_line.hpp"
#include "tools/bfrun/job/rank_report.hpp"

namespace bluefog::bfrun {

/// The way from a rank's watcher to bfrun: its line where that is on this machine, else standard
/// error.
class Voice {
 public:
  struct Places {
    std::string line;       ///< kRankLineVariable
    std::string host_line;  ///< kHostLineVariable
  };

  /// @param key without one nobody listens.
  Voice(std::string key, const Places& places, int rank);

  /// Returns false when nobody is left to take the report.
  [[nodiscard]] bool send(const RankReport& report) const;
  /// Readable once bfrun has ended, or cannot be reached any more; −1 where that is not to be
  /// known.
  [[nodiscard]] int descriptor() const {
    return line_.descriptor() >= 0 ? line_.descriptor() : host_line_.descriptor();
  }
  /// Whether bfrun had ended before this rank began.
  [[nodiscard]] bool is_orphaned() const { return line_.state() == RankLineEnd::State::Orphaned; }

 private:
  std::string key_;
  RankLineEnd line_;
  HostLineEnd host_line_;
};

}  // namespace bluefog::bfrun
