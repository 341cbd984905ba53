#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bluefog_cpp/bootstrap.hpp"
#include "bluefog_cpp/bootstrap/store/applicants.hpp"
#include "bluefog_cpp/bootstrap/store/store_exchange.hpp"
#include "bluefog_cpp/deadline.hpp"

namespace bluefog {

/// The meeting, in a store, of the ranks of a group that are left, of which more may end meanwhile.
///
/// Attempts are numbered. In each, every rank that lives announces itself; the lowest one that
/// lives waits for the others and writes down who they are. A rank that gives an attempt up begins
/// the next one, and all that are still at the earlier one follow it. Numbers that a store counts
/// decide between two that would write: the first one does. Where all ranks that have come admit
/// applicants, those that answer are part of the new group, behind the ranks that are left.
class Regrouping {
 public:
  using Place = StoreExchange::Place;
  struct Verdict {
    std::int64_t group = 0;            ///< a number of this group alone
    std::vector<int> ranks;            ///< rising
    std::vector<std::int64_t> joined;  ///< applicants, whose ranks follow; rising
    std::vector<Bootstrap::Lost> lost;
    std::int64_t time_us = 0;  ///< since 1970, by the clock of who has written it

    [[nodiscard]] int size() const { return static_cast<int>(ranks.size() + joined.size()); }
  };
  /// The place in a group that an applicant is told.
  struct Seat {
    std::int64_t group = 0;    ///< as in the verdict
    std::int64_t attempt = 0;  ///< of the meeting
    int rank = 0;
    int size = 1;
    std::string meeting;  ///< the prefix of the group that is left

    [[nodiscard]] std::string text() const;
    [[nodiscard]] static Seat from(std::string_view text);
  };
  /// How a rank comes.
  struct Coming {
    Bootstrap::WhyGone why_gone;  ///< as of `Bootstrap::regroup`
    bool admits = false;          ///< likewise
    Deadline deadline;            ///< likewise
    int late = -1;                ///< the rank of `Bootstrap::expect_late`
    Deadline late_deadline{};     ///< likewise
  };

  /// @param place that of the group which is left. @param attempt the one that its ranks are at.
  explicit Regrouping(Place place, std::int64_t attempt = 0)
      : place_(std::move(place)),
        applicants_(place_.store, place_.root, place_.log),
        attempt_(attempt) {}

  /// Takes part in the next attempt.
  /// @param is_over set when nobody waits for this call any more.
  [[nodiscard]] Verdict meet(const Coming& coming, const std::atomic<bool>& is_over);
  /// Whether the attempt that was met in has been given up. Any thread.
  [[nodiscard]] bool is_given_up();
  /// `Bootstrap::Regrouped::settle`, of the ranks that `meet` has found.
  [[nodiscard]] bool settle(const Verdict& verdict, bool is_ready, const Coming& coming,
                            const std::atomic<bool>& is_over);
  /// Whether somebody asks to be taken in.
  [[nodiscard]] bool has_applicants() { return applicants_.are_there(); }
  /// Why an applicant that has been taken in will not come; nothing while all may. One thread.
  [[nodiscard]] std::optional<std::string> why_joined_gone(const Verdict& verdict) {
    return applicants_.why_gone(verdict.joined);
  }

 private:
  /// The ranks that have come, and what those say of the others.
  struct Arrivals;

  [[nodiscard]] std::string key(std::int64_t attempt, const std::string& of) const;
  [[nodiscard]] bool has_begun(std::int64_t attempt);
  void begin(std::int64_t attempt);
  [[nodiscard]] std::optional<Verdict> attempt(const Coming& coming,
                                               const std::atomic<bool>& is_over);
  void announce(bool admits, const std::vector<Bootstrap::Lost>& gone);
  void look_for_arrivals(Arrivals& arrivals);
  [[nodiscard]] std::optional<Verdict> conclude(const Arrivals& arrivals,
                                                const std::vector<Bootstrap::Lost>& gone);
  void tell_launcher_of(int rank);
  void seat(const Verdict& verdict);
  [[nodiscard]] bool have_settled(const Verdict& verdict, bool is_ready, const Coming& coming,
                                  const std::atomic<bool>& is_over);
  void end_applications(const Verdict& verdict, bool are_all_ready);
  [[nodiscard]] std::vector<Bootstrap::Lost> gone_now(const Bootstrap::WhyGone& why_gone) const;
  void check_membership(const Verdict& verdict) const;

  Place place_;
  Applicants applicants_;
  std::atomic<std::int64_t> attempt_{0};
};

}  // namespace bluefog
