#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tools/bfrun/elastic/far_start.hpp"
#include "tools/bfrun/elastic/host_discovery.hpp"
#include "tools/bfrun/elastic/slots.hpp"
#include "tools/bfrun/job/process.hpp"
#include "tools/bfrun/start/environment.hpp"

namespace bluefog::bfrun {

/// The ranks that bfrun starts itself, on this machine.
struct OwnRanks {
  int count = 1;
  std::vector<std::string> words;  ///< of each rank's watcher
  Environment environment;         ///< of all; each gets RANK and its like
  bool fault_tolerant = false;     ///< the others go on when one is killed
  /// The others go on, whatever has ended some, while so many are left; 0: never.
  int enough = 0;
  bool may_start_later = false;  ///< where `ChildEvents` says so
  std::vector<Slot> slots = {};  ///< of the first ranks, by rank
  /// For the slots of other hosts.
  FarHosts far = {};
  /// Asked beside the ranks, where there is one.
  HostDiscovery* discovery = nullptr;
  /// A descriptor that is readable when ranks have gone on without another one, and which one then.
  int left_out = -1;
  std::function<int()> take_left_out = {};
  /// Called once all have been started.
  std::function<void()> on_started = {};
};

/// Starts the ranks, each in a process group of its own, and waits for the end of all.
///
/// Rank 0 reads standard input, the others /dev/null; all write to standard output. SIGINT,
/// SIGTERM, SIGHUP and SIGQUIT that reach the calling process, and a rank that fails, end the
/// others: SIGTERM, then SIGKILL `kEndGrace` later. After a failure SIGTERM waits, `kSpareTime` at
/// most, as long as `ChildCare::spare_others` says so. SIGUSR1 and SIGUSR2 are passed on. The rest is
/// as of `run_child`.
/// A rank that is started again is the one before in all that it is given, has `kJoinVariable`
/// besides where it is to join others, and does not count as one that has failed.
/// @return how the job ended: with the code that a shell gives for the watcher that failed first;
///   with success where `enough` have ended well.
[[nodiscard]] ExitStatus run_own_ranks(const OwnRanks& ranks, const ChildEvents& events);

inline constexpr std::chrono::milliseconds kEndGrace{2000};
inline constexpr std::chrono::milliseconds kSpareTime{3000};

}  // namespace bluefog::bfrun
