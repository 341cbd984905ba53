#include "optimizers/checks/rate_watch.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <vector>

#include "bluefog_cpp/context/context_core.hpp"

namespace bluefog::optimizers {

void RateWatch::begin(std::int64_t steps, bool is_new) {
  *this = {};
  next_ = 1;
  since_ = steps;
  is_new_ = is_new;
}

void RateWatch::note_step(Context& context, std::int64_t steps, double rate) {
  if (!is_on()) {
    return;
  }
  Engine& engine = context.core().engine();
  // Steps may be counted several at a time, by as many on all ranks.
  if (steps >= since_ + next_) {
    while (steps >= since_ + next_) {
      next_ *= 2;
    }
    if (context.rank() == 0) {
      own_.emplace(steps, rate);
    } else if (is_new_) {
      engine.run_exclusively([&] {
        engine.step_news().statements.make(static_cast<std::uint64_t>(steps),
                                           fmt::format("{:.17g}", rate));
      });
    }
  }
  if (context.rank() == 0) {
    compare(context);
  }
}

void RateWatch::compare(Context& context) {
  Engine& engine = context.core().engine();
  engine.run_exclusively([&] {
    for (const auto& statement : engine.step_news().statements.take()) {
      heard_.push_back({.rank = statement.rank,
                        .steps = static_cast<std::int64_t>(statement.step),
                        .rate = std::strtod(statement.text.c_str(), nullptr)});
    }
  });
  std::erase_if(heard_, [&](const Heard& heard) {
    const auto own = own_.find(heard.steps);
    if (own == own_.end()) {
      return false;
    }
    constexpr double kRounding = 1e-6;
    const bool differs = !(std::abs(heard.rate - own->second) <= kRounding * std::abs(own->second));
    if (differs && said_.insert(heard.rank).second) {
      context.log().warning(fmt::format(
          "rank {}, which has joined, has made step {} with a learning rate of {:.6g}, this rank "
          "with {:.6g}: expected the same one, lest its model becomes another one; has it a "
          "scheduler that began at 0? (bf.hand_to_newcomers(scheduler), in C++ as many steps of "
          "the scheduler as DistributedOptimizer::step_count)",
          heard.rank, heard.steps - 1, heard.rate, own->second));
    }
    return true;
  });
}

}  // namespace bluefog::optimizers
