#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <exception>
#include <iterator>
#include <string>
#include <thread>
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
  /// Ends an exchange early: readers that were notified of a message, but have not got it in full,
  /// learn that the rest does not come. @tparam Exchange `Exchange`. @param reason for the readers.
  template <typename Exchange>
  void end(Exchange& exchange, const std::string& reason) noexcept {
    constexpr int kTries = 100;
    bool is_known = false;
    for (int attempt = 0; !is_known && attempt < kTries; ++attempt) {
      try {
        add(exchange.begun(), reason);
        is_known = true;
      } catch (const std::exception&) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
    exchange.drop();
    has_torn_streams_ = has_torn_streams_ || !is_known;
  }
  /// Whether there was no memory to end one: its readers would take the next message for the rest.
  [[nodiscard]] bool has_torn_streams() const noexcept { return has_torn_streams_; }

  /// Ends those for which there is room. @return whether one has left.
  bool send() {
    const std::size_t before = waiting_.size();
    for (auto waiting = waiting_.begin(); waiting != waiting_.end();) {
      Retraction& retraction = waiting->retraction;
      const bool has_left = retraction.transport->abort(retraction.departure, waiting->reason);
      waiting = has_left ? waiting_.erase(waiting) : std::next(waiting);
    }
    return waiting_.size() < before;
  }

  [[nodiscard]] bool empty() const noexcept { return waiting_.empty(); }
  void clear() noexcept { waiting_.clear(); }

 private:
  struct Waiting {
    Retraction retraction{};
    std::string reason{};
  };
  /// Adds all of them or, out of memory, none.
  void add(std::vector<Retraction> retractions, const std::string& reason) {
    std::vector<Waiting> added;
    for (Retraction& retraction : retractions) {
      added.push_back({std::move(retraction), reason});
    }
    waiting_.reserve(waiting_.size() + added.size());
    std::ranges::move(added, std::back_inserter(waiting_));
  }

  std::vector<Waiting> waiting_;
  bool has_torn_streams_ = false;
};

}  // namespace bluefog
