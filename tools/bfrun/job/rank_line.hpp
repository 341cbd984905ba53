#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "tools/bfrun/job/descriptor.hpp"
#include "tools/bfrun/job/rank_report.hpp"

namespace bluefog::bfrun {

/// Variable that tells the watchers of ranks on which machine bfrun listens.
inline constexpr const char* kRankLineVariable = "BFRUN_LINE";

/// The ear of bfrun for the watchers on its own machine, beside mpirun: an mpirun that hangs passes
/// nothing on. Each watcher holds a connection for as long as it lives, and so knows bfrun's end,
/// too.
///
/// The socket is in the abstract namespace, under the key of the job; processes of other users are
/// turned away.
class RankLine {
 public:
  struct Listener {
    std::function<void(const RankReport&)> on_report;
    std::function<void(int rank)> on_end;  ///< the watcher of a rank has ended
  };

  /// Listens where the system grants `descriptors`: one for each watcher, and what else the job
  /// takes in this process. Elsewhere nobody finds the line, and watchers report on standard error.
  RankLine(std::string key, int descriptors);
  /// What this process has open besides, or opens for a moment.
  static constexpr int kOtherDescriptors = 64;

  RankLine(const RankLine&) = delete;
  RankLine& operator=(const RankLine&) = delete;
  ~RankLine() = default;

  /// The value of kRankLineVariable; empty where nobody listens.
  [[nodiscard]] const std::string& place() const { return place_; }
  /// Readable when there is something to serve; −1 where nobody listens.
  [[nodiscard]] int descriptor() const { return events_.get(); }
  /// Takes what is there. Does not block. @throws TransportError where no descriptor is left.
  void serve(const Listener& listener);

 private:
  struct Watcher {
    Descriptor socket;
    int rank = -1;  ///< −1 until it has said so
  };

  void accept_watchers();
  /// Returns whether the watcher is still there.
  bool hear(Watcher& watcher, const Listener& listener) const;

  std::string key_;
  std::string place_;
  Descriptor events_;
  Descriptor socket_;
  std::map<int, Watcher> watchers_;  ///< by descriptor
};

/// A watcher's end of the line.
class RankLineEnd {
 public:
  enum class State {
    Elsewhere,  ///< bfrun listens on another machine, or not at all
    Connected,
    Orphaned,  ///< bfrun listened on this machine, and has ended
  };

  RankLineEnd(const std::string& place, std::string_view key);

  [[nodiscard]] State state() const { return state_; }
  /// Readable once bfrun has ended; −1 where not connected.
  [[nodiscard]] int descriptor() const { return socket_.get(); }
  /// Returns whether bfrun is there to take it.
  [[nodiscard]] bool send(const RankReport& report, std::string_view key) const;

 private:
  State state_ = State::Elsewhere;
  Descriptor socket_;
};

}  // namespace bluefog::bfrun
