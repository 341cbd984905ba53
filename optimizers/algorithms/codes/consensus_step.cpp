#include "optimizers/algorithms/codes/consensus_step.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <optional>

#include "bluefog_cpp/error.hpp"
#include "optimizers/checks/momentum_growth.hpp"

namespace bluefog::optimizers {
namespace {

constexpr const char* kStepName = "consensus_step_size";
constexpr double kLeastStep = 0.001;
/// A factor a round from which on differences do not die out, or not within a training.
constexpr double kTrialDiesOut = 0.9999;
constexpr std::size_t kTrialValues = 4096;

/// Whether differences die out by the schedule's averages without a code.
bool alone_dies_out(const Schedule& schedule) {
  return growth_per_round({.momentum = 0.0}, schedule) <= kDiesOut;
}

/// The growth by which a step size is found unfit; nothing where it is fit.
std::optional<double> unfit_growth(const CodedRounds& rounds, const CodedTrial& trial) {
  const double growth = std::max(trial.growth, trial.late_growth);
  const bool may_stay = growth <= kMostGrowth;
  const bool is_fit =
      (trial.growth < kTrialDiesOut && may_stay) || (may_stay && !alone_dies_out(rounds.schedule));
  return is_fit ? std::nullopt : std::optional<double>(growth);
}

bool needs_no_trial(const CodedRounds& rounds, double step, bool has_momentum) {
  return rounds.schedule.size() == 1 ||
         (!has_momentum && step <= 1.0 &&
          rounds.compression.contraction(kTrialValues) >= kKeepsNearlyAll);
}

/// The one of 1, ½, ¼, … that leaves least of the differences; nothing where none is fit. Steps that
/// are shorter than the best leave more, once there is one that leaves little.
std::optional<double> best_step(const CodedRounds& rounds, bool has_momentum) {
  constexpr double kLittle = 0.5;
  constexpr double kNotLess = 0.99;
  if (needs_no_trial(rounds, 1.0, has_momentum)) {
    return 1.0;
  }
  std::optional<double> best;
  double least = 0.0;
  for (double step = 1.0; step >= kLeastStep; step /= 2.0) {
    const CodedTrial trial = try_coded_rounds(rounds, step);
    if (!unfit_growth(rounds, trial) && (!best || trial.left < kNotLess * least)) {
      best = step;
      least = trial.left;
    } else if (best && least < kLittle) {
      break;
    }
    if (best && least == 0.0) {
      break;
    }
  }
  return best;
}

std::string subject_of(const CodedRounds& rounds, std::string_view others) {
  return fmt::format("compression {}, {}{}", rounds.compression.name(), others, kStepName);
}

std::string expected_by(const DistributedOptimizerOptions& options) {
  return fmt::format(
      "{} expects differences between ranks to die out over the schedule where there are no "
      "gradients, found",
      options.algorithm.text());
}

std::string failed_trial(const CodedRounds& rounds, const std::exception& error) {
  return fmt::format(
      "compression {}: expected a code for {} numbers in a trial, found an error: {}",
      rounds.compression.name(), kTrialValues, error.what());
}

std::string refusal_of_all(const DistributedOptimizerOptions& options, const CodedRounds& rounds,
                           std::string_view others) {
  return fmt::format(
      "{} 0: {} none from 1 down to 1/512 with which they do; use a code that keeps "
      "more{}",
      subject_of(rounds, others), expected_by(options),
      others.empty() ? "" : ", or a smaller momentum");
}

std::string step_refusal(const DistributedOptimizerOptions& options, const CodedRounds& rounds,
                         std::string_view others) {
  const double step = number_of(options, kStepName);
  if (step == 0.0) {
    return {};
  }
  const bool has_momentum = !others.empty();
  const std::optional<double> growth = needs_no_trial(rounds, step, has_momentum)
                                           ? std::nullopt
                                           : unfit_growth(rounds, try_coded_rounds(rounds, step));
  if (!growth) {
    return {};
  }
  const std::optional<double> fit = best_step(rounds, has_momentum);
  return fmt::format("{} {}: {} a factor of {:.4g} a round; {}", subject_of(rounds, others), step,
                     expected_by(options), *growth,
                     fit ? fmt::format("with {} {} they do", kStepName, *fit)
                         : std::string("use a code that keeps more, or smaller ones"));
}

}  // namespace

AlgorithmOption consensus_step_option() {
  return {
      .name = kStepName,
      .default_value = 0.0,
      .meaning =
          "κ of choco, from 0.001 to below 2; 0: the best of 1, ½, ¼, … in a trial with the code",
      .least = 0.0,
      .below = 2.0};
}

std::string why_unfit_step(const DistributedOptimizerOptions& options, const CodedRounds& rounds,
                           std::string_view others) {
  const double step = number_of(options, kStepName);
  if (step > 0.0 && step < kLeastStep) {
    return fmt::format("{}: expected 0, or from {} to below 2, found {}", kStepName, kLeastStep,
                       step);
  }
  try {
    return step_refusal(options, rounds, others);
  } catch (const std::exception& error) {  // of a program's own code
    return failed_trial(rounds, error);
  }
}

std::vector<ChosenNumber> chosen_step(const DistributedOptimizerOptions& options,
                                      const CodedRounds& rounds, std::string_view others) {
  if (number_of(options, kStepName) != 0.0) {
    return {};
  }
  std::optional<double> found;
  try {
    found = best_step(rounds, !others.empty());
  } catch (const std::exception& error) {
    throw InvalidArgument(failed_trial(rounds, error));
  }
  if (!found) {
    throw InvalidArgument(refusal_of_all(options, rounds, others));
  }
  return {
      {.option = kStepName,
       .value = *found,
       .reason = *found < 1.0
                     ? fmt::format("the best of 1, 1/2, 1/4, ... in a trial with compression {}",
                                   rounds.compression.name())
                     : std::string()}};
}

}  // namespace bluefog::optimizers
