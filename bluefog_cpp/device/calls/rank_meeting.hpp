#pragma once

#include <vector>

#include "bluefog_cpp/engine/exchange.hpp"
#include "bluefog_cpp/weighted_rank.hpp"

namespace bluefog {

/// A meeting of all ranks: an exchange without payload in which every rank hears every other.
class RankMeeting {
 public:
  RankMeeting(int rank, int size) {
    for (int other = 0; other < size; ++other) {
      if (other != rank) {
        others_.push_back({.rank = other});
        incoming_.push_back({.source = {.rank = other}});
      }
    }
    outgoing_.push_back({.readers = others_});
  }
  RankMeeting(const RankMeeting&) = delete;
  RankMeeting& operator=(const RankMeeting&) = delete;

  /// Fills in the messages, which are here as long as the meeting is.
  void describe(ExchangeSpec& spec) const {
    spec.outgoing = outgoing_;
    spec.incoming = incoming_;
    spec.pace = Pace::Each;
  }

 private:
  std::vector<WeightedRank> others_;
  std::vector<Outgoing> outgoing_;
  std::vector<Incoming> incoming_;
};

}  // namespace bluefog
