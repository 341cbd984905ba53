#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bluefog_cpp/deadline.hpp"
#include "bluefog_cpp/log.hpp"
#include "bluefog_cpp/store.hpp"

namespace bluefog {

/// The keys by which a process outside asks the ranks of a launch to take it in. Applicants are
/// numbered from 1 on.
class ApplicationKeys {
 public:
  /// @param root the prefix of the launch's ranks.
  explicit ApplicationKeys(std::string root) : root_(std::move(root)) {}

  /// The number of a key that counts applicants.
  [[nodiscard]] std::string count() const { return root_ + "/applicants"; }
  /// There once the last rank has left.
  [[nodiscard]] std::string ended() const { return root_ + "/ended"; }
  /// The applicant's version: it waits to be taken in.
  [[nodiscard]] std::string ready(std::int64_t id) const { return of(id, "ready"); }
  /// What a rank wants to have repeated in `pong`.
  [[nodiscard]] std::string ping(std::int64_t id) const { return of(id, "ping"); }
  [[nodiscard]] std::string pong(std::int64_t id) const { return of(id, "pong"); }
  /// A number that grows while the applicant lives, from its `pong` on.
  [[nodiscard]] std::string beat(std::int64_t id) const { return of(id, "beat"); }
  /// The place that ranks have for it: words of `Regrouping`.
  [[nodiscard]] std::string place(std::int64_t id) const { return of(id, "place"); }
  /// Why it is no applicant any more.
  [[nodiscard]] std::string over(std::int64_t id) const { return of(id, "over"); }

 private:
  [[nodiscard]] std::string of(std::int64_t id, const char* what) const;

  std::string root_;
};

/// The processes that ask to be taken in, as the ranks of a launch see them.
class Applicants {
 public:
  Applicants(std::shared_ptr<Store> store, std::string root, Logger log)
      : store_(std::move(store)), keys_(std::move(root)), log_(std::move(log)) {}

  /// Whether one waits. Cost: one message and its answer, and two for each that waits.
  [[nodiscard]] bool are_there();
  /// Those that answer now, rising; others, and those of another version than `version`, are turned
  /// away. @param question unlike all before.
  [[nodiscard]] std::vector<std::int64_t> ask(const std::string& question,
                                              const std::string& version);
  /// Has it know its place.
  void tell(std::int64_t id, const std::string& place);
  /// It is no applicant any more. @param why a clause.
  void turn_away(std::int64_t id, const std::string& why);
  /// Why one of them will not come any more, after some looks.
  [[nodiscard]] std::optional<std::string> why_gone(const std::vector<std::int64_t>& ids);

 private:
  struct Pulse {
    std::int64_t beats = -1;
    Deadline::Clock::time_point since{};
  };

  [[nodiscard]] std::vector<std::int64_t> waiting();
  /// `turn_away`, with a line in the log.
  void refuse(std::int64_t id, const std::string& why);

  std::shared_ptr<Store> store_;
  ApplicationKeys keys_;
  Logger log_;
  /// All below are no applicants any more.
  std::int64_t first_ = 1;
  std::map<std::int64_t, Pulse> pulses_;
};

}  // namespace bluefog
