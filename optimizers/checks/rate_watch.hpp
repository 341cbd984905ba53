#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "bluefog_cpp/context.hpp"

namespace bluefog::optimizers {

/// Whether ranks that are new step with the learning rate of the others: a scheduler of theirs that
/// begins at 0 would else make another model of theirs without a word.
///
/// They tell rank 0 theirs, 1, 2, 4, 8, … steps behind the meeting in which they have joined. Nobody
/// waits for it. Cost: a control message for each of those.
class RateWatch {
 public:
  /// Ranks meet, of which some are new, behind so many steps.
  void begin(std::int64_t steps, bool is_new);
  /// A step has been made. @param steps how many with it. @param rate the learning rate of its first
  /// group of parameters.
  void note_step(Context& context, std::int64_t steps, double rate);

  /// Whether it has something to do in steps.
  [[nodiscard]] bool is_on() const noexcept { return next_ > 0; }

 private:
  /// What a rank has told of a step.
  struct Heard {
    int rank = -1;
    std::int64_t steps = 0;
    double rate = 0;
  };

  void compare(Context& context);

  /// Steps of the next comparison, from the meeting on; zero: there is none.
  std::int64_t next_ = 0;
  std::int64_t since_ = 0;
  bool is_new_ = false;
  /// Rank 0's own, by the steps made.
  std::map<std::int64_t, double> own_{};
  /// What it has heard of steps that it has not made yet.
  std::vector<Heard> heard_{};
  /// The ranks it has complained of.
  std::set<int> said_{};
};

}  // namespace bluefog::optimizers
