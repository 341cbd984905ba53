#pragma once

#include <string>
#include <utility>
#include <vector>

#include "bluefog_cpp/transport/transport.hpp"

namespace bluefog {

/// A message that its writer began and will not end.
struct Retraction {
  Transport* transport = nullptr;
  Departure departure{};
  /// Memory of `departure.readers`.
  std::vector<WeightedRank> readers{};
};

/// Messages that were begun and will not end, until their readers have been notified.
class Retractions {
 public:
  /// @param reason for the readers.
  void add(std::vector<Retraction> retractions, const std::string& reason) {
    for (Retraction& retraction : retractions) {
      waiting_.push_back({std::move(retraction), reason});
    }
  }

  /// Ends those for which there is room. @return whether one has left.
  bool send() {
    return std::erase_if(waiting_, [](Waiting& waiting) {
             Retraction& retraction = waiting.retraction;
             return retraction.transport->abort(retraction.departure, waiting.reason);
           }) > 0;
  }

  [[nodiscard]] bool empty() const noexcept { return waiting_.empty(); }
  void clear() noexcept { waiting_.clear(); }

 private:
  struct Waiting {
    Retraction retraction{};
    std::string reason{};
  };
  std::vector<Waiting> waiting_;
};

}  // namespace bluefog
