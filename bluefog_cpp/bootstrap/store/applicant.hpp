#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "bluefog_cpp/bootstrap/store/applicants.hpp"
#include "bluefog_cpp/bootstrap/store/regrouping.hpp"

namespace bluefog {

/// This process, which asks the ranks of a running launch to take it in. One thread at a time.
class Applicant {
 public:
  /// What the ranks have for it.
  struct Admission {
    int rank = 0;
    /// Of the meeting in which they have taken it in; says nothing of the others but their number.
    Regrouping::Verdict verdict;
    /// For `Regrouping::settle` and `is_given_up`.
    std::shared_ptr<Regrouping> meeting;
  };

  /// @param place of the launch: its store, its root.
  explicit Applicant(Regrouping::Place place);
  ~Applicant();
  Applicant(const Applicant&) = delete;
  Applicant& operator=(const Applicant&) = delete;

  /// The number of this applicant; no other one of the launch has it.
  [[nodiscard]] std::int64_t id() const noexcept { return id_; }

  /// Waits until the ranks take it in, each time in another group. @param is_over set when nobody
  /// waits for this call any more. @throws StateError where they turn it away, or have all left.
  [[nodiscard]] Admission wait(const std::atomic<bool>& is_over);
  /// It has been taken in.
  void end() { pulse_ = {}; }

 private:
  void answer();
  void check_hope() const;

  Regrouping::Place place_;
  ApplicationKeys keys_;
  std::int64_t id_;
  std::string answered_;
  std::int64_t group_ = 0;
  std::jthread pulse_;
};

/// The group of a process that is new in it. @param then called once it has come about.
[[nodiscard]] Bootstrap::Regrouped taken_in(Bootstrap::Regrouped group, std::function<void()> then);

}  // namespace bluefog
