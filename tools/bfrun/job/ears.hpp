#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tools/bfrun/job/descriptor.hpp"
#include "tools/bfrun/job/host_line.hpp"
#include "tools/bfrun/job/monitor/job_monitor.hpp"
#include "tools/bfrun/job/process.hpp"
#include "tools/bfrun/job/rank_line.hpp"

namespace bluefog::bfrun {

/// All that bfrun hears of ranks past mpirun: on this machine their reports, on others whether they
/// can be reached.
class Ears {
 public:
  /// @param descriptors as of `RankLine`.
  Ears(const std::string& key, int descriptors);

  /// Listens for other machines too. As of `HostLine`.
  void hear_hosts(const std::vector<std::string>& addresses, std::string secret,
                  std::chrono::seconds silence);

  /// The values of kRankLineVariable and kHostLineVariable.
  [[nodiscard]] const std::string& rank_place() const { return ranks_.place(); }
  [[nodiscard]] std::string host_place() const { return hosts_ ? hosts_->place() : std::string(); }
  /// Readable when there is something to serve; −1 where nobody listens.
  [[nodiscard]] int descriptor() const;
  /// Takes what is there. Does not block.
  void serve(const RankLine::Listener& ranks, const HostLine::Listener& hosts);

 private:
  RankLine ranks_;
  std::optional<HostLine> hosts_;
  Descriptor both_;
};

/// Runs the job to its end, told of its events.
using RunRanks = std::function<ExitStatus(const ChildEvents&)>;

/// Runs mpirun, or the ranks, and passes what is heard of them to the monitor. Returns bfrun's
/// code.
int run_and_follow(const RunRanks& run, const std::string& key, Ears& ears, JobMonitor& monitor);

}  // namespace bluefog::bfrun
