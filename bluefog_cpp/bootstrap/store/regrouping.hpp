#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bluefog_cpp/bootstrap.hpp"
#include "bluefog_cpp/bootstrap/store/store_exchange.hpp"
#include "bluefog_cpp/deadline.hpp"

namespace bluefog {

/// The meeting, in a store, of the ranks of a group that are left, of which more may end meanwhile.
///
/// Attempts are numbered. In each, every rank that lives announces itself; the lowest one that
/// lives waits for the others and writes down who they are. A rank that gives an attempt up begins
/// the next one, and all that are still at the earlier one follow it. Numbers that a store counts
/// decide between two that would write: the first one does.
class Regrouping {
 public:
  using Place = StoreExchange::Place;
  struct Verdict {
    std::int64_t group = 0;  ///< a number of this group alone
    std::vector<int> ranks;  ///< rising
    std::vector<Bootstrap::Lost> lost;
  };

  /// @param place that of the group which is left.
  explicit Regrouping(Place place) : place_(std::move(place)) {}

  /// Takes part in the next attempt. @param why_gone, deadline as `Bootstrap::regroup`.
  /// @param is_over set when nobody waits for this call any more.
  [[nodiscard]] Verdict meet(const Bootstrap::WhyGone& why_gone, Deadline deadline,
                             const std::atomic<bool>& is_over);
  /// Whether the attempt that was met in has been given up. Any thread.
  [[nodiscard]] bool is_given_up();
  /// `Bootstrap::Regrouped::settle`, of the ranks that `meet` has found.
  [[nodiscard]] bool settle(const Verdict& verdict, bool is_ready,
                            const Bootstrap::WhyGone& why_gone, Deadline deadline,
                            const std::atomic<bool>& is_over);

 private:
  /// The ranks that have come, and what those say of the others.
  struct Arrivals;

  [[nodiscard]] std::string key(std::int64_t attempt, const std::string& of) const;
  [[nodiscard]] bool has_begun(std::int64_t attempt);
  void begin(std::int64_t attempt);
  [[nodiscard]] std::optional<Verdict> attempt(const Bootstrap::WhyGone& why_gone,
                                               Deadline deadline, const std::atomic<bool>& is_over);
  void announce(const std::vector<Bootstrap::Lost>& gone);
  void look_for_arrivals(Arrivals& arrivals);
  [[nodiscard]] std::optional<Verdict> conclude(const Arrivals& arrivals,
                                                const std::vector<Bootstrap::Lost>& gone);
  [[nodiscard]] std::vector<Bootstrap::Lost> gone_now(const Bootstrap::WhyGone& why_gone) const;
  void check_membership(const Verdict& verdict) const;

  Place place_;
  std::atomic<std::int64_t> attempt_{0};
};

}  // namespace bluefog
