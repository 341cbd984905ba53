#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tools/bfrun/start/hosts.hpp"

namespace bluefog::bfrun {

/// The host on which bfrun runs, by whatever name it goes.
inline constexpr std::string_view kThisMachine = "localhost";

/// A place for one rank.
struct Slot {
  std::string host;
  int index = 0;  ///< among those of its host

  bool operator==(const Slot&) const = default;
};

/// The slots of a job whose number of ranks changes, and the ranks in them.
///
/// A rank keeps its slot, and its number, when it is started again. One that is told to leave has it
/// until its process is gone, and one that is lost for good spoils it: such a slot is filled again
/// only after it has vanished in between.
class Slots {
 public:
  /// @param most ranks at a time.
  explicit Slots(int most) : most_(most) {}

  struct NewRank {
    int rank = 0;
    Slot slot;

    bool operator==(const NewRank&) const = default;
  };

  /// The slots that there are now. They are filled in the order of hosts.
  void set_hosts(std::vector<HostSlots> hosts) { hosts_ = std::move(hosts); }
  /// The ranks that are to be told to leave, each once: those whose slots have vanished and that
  /// `may_leave`, which is asked for one after the other, by rising rank.
  [[nodiscard]] std::vector<int> take_leaving(const std::function<bool(int rank)>& may_leave);
  /// Fills the slots that are free. New ranks have the lowest numbers that are free.
  /// @param most_now ranks at a time, for this call.
  [[nodiscard]] std::vector<NewRank> fill(int most_now);
  [[nodiscard]] std::vector<NewRank> fill() { return fill(most_); }

  /// The process of `rank` is gone, and is not started again.
  void free(int rank) { seats_.erase(rank); }
  /// The same, and it has failed: nobody gets its slot.
  void spoil(int rank);

  [[nodiscard]] int most() const { return most_; }
  /// The host of a rank that has a slot.
  [[nodiscard]] const std::string& host_of(int rank) const { return seats_.at(rank).slot.host; }
  /// Ranks that have a slot, without those that have spoilt it.
  [[nodiscard]] int occupied() const;
  /// Slots of `host`.
  [[nodiscard]] int slots_of(const std::string& host) const;
  [[nodiscard]] int total() const;

 private:
  enum class State { Used, Leaving, Spoilt };
  struct Seat {
    Slot slot;
    State state = State::Used;
  };

  [[nodiscard]] bool is_there(const Slot& slot) const;

  int most_;
  std::vector<HostSlots> hosts_;
  std::map<int, Seat> seats_;  ///< by rank
};

}  // namespace bluefog::bfrun
