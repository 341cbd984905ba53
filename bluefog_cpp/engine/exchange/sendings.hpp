#pragma once

#include <boost/container/small_vector.hpp>
#include <cstddef>
#include <span>
#include <vector>

#include "bluefog_cpp/engine/exchange/retractions.hpp"
#include "bluefog_cpp/engine/exchange/routes.hpp"
#include "bluefog_cpp/engine/exchange_spec.hpp"
#include "bluefog_cpp/transport/transport.hpp"
#include "bluefog_cpp/weighted_rank.hpp"

namespace bluefog {

/// The messages that an exchange sends, one for each payload and transport.
class Sendings {
 public:
  /// Takes the outgoing payloads of `call`; nothing is sent yet.
  void start(const ExchangeCall& call, const Routes& routes);

  /// Moves out what there is room for. @return whether anything moved.
  bool publish(Supply* supply, const StepRights& rights);

  /// Every reader has been sent everything.
  [[nodiscard]] bool published() const noexcept { return published_; }

  /// Bytes of every payload that have been copied out, in whole cache lines but at the end: sockets
  /// stop in the middle of an element. @param most all of them, and what comes where there is none.
  [[nodiscard]] std::size_t copied_out(std::size_t most) const noexcept;

  /// The messages that readers were notified of but have not got in full: where they end early,
  /// readers must learn that the rest does not come.
  [[nodiscard]] std::vector<Retraction> begun() const;
  /// Ends early.
  void drop() noexcept {
    sendings_.clear();
    published_ = true;
  }

  /// Ranks that have not taken what this rank sends, while there is no room for more.
  [[nodiscard]] AwaitedRanks awaited_readers() const;
  /// The reader that comes next, or -1 when everything is published.
  [[nodiscard]] int next_reader() const noexcept;

 private:
  struct Sending {
    Departure departure{};
    Transport* transport = nullptr;
  };

  void add(const ExchangeCall& call, const Outgoing& outgoing, const Routes& routes);
  [[nodiscard]] bool waits_for_earlier(std::size_t index) const;

  boost::container::small_vector<Sending, kInlineNeighbors> sendings_;
  std::vector<std::vector<WeightedRank>> split_readers_;
  bool published_ = false;
};

}  // namespace bluefog
