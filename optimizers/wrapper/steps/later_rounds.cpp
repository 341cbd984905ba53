#include "optimizers/wrapper/steps/later_rounds.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "bluefog_cpp/error.hpp"
#include "optimizers/checks/agreement.hpp"
#include "optimizers/checks/model_statement.hpp"

namespace bluefog::optimizers {

LaterRounds::LaterRounds(Context& context, Schedule schedule)
    : context_(context),
      schedule_(std::move(schedule)),
      rounds_at_once_(compared_rounds(schedule_)) {}

std::int64_t LaterRounds::place_of(std::int64_t round) const {
  return round % schedule_.period_steps() / rounds_at_once_;
}

bool LaterRounds::is_due(std::int64_t round) const { return place_of(round) != last_; }

void LaterRounds::compare(std::int64_t round) {
  if (!is_due(round)) {
    if (!mismatch_.empty()) {
      throw MismatchError(mismatch_);
    }
    return;
  }
  pass_over(round);
  mismatch_.clear();
  const std::int64_t first = last_ * rounds_at_once_;
  const std::int64_t count = std::min(rounds_at_once_, schedule_.period_steps() - first);
  Statement statement;
  std::exception_ptr failed;
  try {
    statement.lines = round_lines(schedule_, first, count);
  } catch (const std::exception& error) {
    statement.problem = error.what();
    failed = std::current_exception();
  }
  try {
    check_ranks_agree(context_, fmt::format("schedule, rounds {} to {}", first, first + count - 1),
                      statement);
  } catch (const MismatchError& error) {
    mismatch_ = error.what();
    throw;
  } catch (const InvalidArgument&) {
    if (failed) {
      std::rethrow_exception(failed);  // with its class and its stack
    }
    throw;
  }
}

}  // namespace bluefog::optimizers
