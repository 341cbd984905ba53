#include "optimizers/algorithms/momentum/moment_averages.hpp"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>

#include "bluefog_cpp/error.hpp"
#include "optimizers/buckets/flat_state.hpp"
#include "optimizers/checks/mixing_requirements.hpp"
#include "optimizers/round_calls.hpp"

namespace bluefog::optimizers {
namespace {

constexpr const char* kAverageMoments = "average_moments";
constexpr double kBothMoments = 2.0;
constexpr std::array<const char*, 2> kMomentNames{"first moments", "second moments"};

at::Tensor moment(const ParameterMoments& moments, std::size_t kind) {
  return kind == 0 ? moments.first : moments.second;
}

/// Empty where the options go together.
std::string why_no_moments_beside(const DistributedOptimizerOptions& options) {
  if (options.step_in_backward) {
    return fmt::format(
        "step_in_backward: {} expects it to be off with {}, because moments are "
        "averaged after their step, found it on",
        options.algorithm.text(), kAverageMoments);
  }
  for (const auto& [name, plain] :
       {std::pair{"consensus_step_size", 1.0}, std::pair{"consensus_decay", 0.0},
        std::pair{"consensus_rounds", 1.0}}) {
    if (const double found = number_of(options, name); found != plain) {
      return fmt::format("{}: {} expects {} with {}, found {}", name, options.algorithm.text(),
                         plain, kAverageMoments, found);
    }
  }
  return {};
}

std::string why_unfit_moments(const DistributedOptimizerOptions& options,
                              const Schedule& schedule) {
  std::string problem = why_no_moments_beside(options);
  if (problem.empty() && number_of(options, kAverageMoments) == kBothMoments) {
    AlgorithmRow row = row_of(options.algorithm);
    row.name += " with second moments, whose averages are to stay above 0,";
    row.mixing.stochastic = Stochastic::Rows;
    problem = why_unfit(row, schedule, options.row_sums);
  }
  return problem;
}

std::string why_unfit_moments_plan(const DistributedOptimizerOptions& options,
                                   const NeighborPlan& plan) {
  const auto is_negative = [](const WeightedRank& source) { return source.weight < 0.0; };
  return number_of(options, kAverageMoments) == kBothMoments &&
                 (plan.self_weight < 0.0 || std::ranges::any_of(plan.sources, is_negative))
             ? fmt::format(
                   "{}: {} expects weights of at least 0 for second moments, found a plan "
                   "with others",
                   kAverageMoments, options.algorithm.text())
             : std::string();
}

}  // namespace

MomentAverages::MomentAverages(Context& context, std::vector<Bucket>& buckets, MomentsOf moments,
                               std::size_t count, Order order)
    : Algorithm(buckets),
      context_(context),
      moments_(std::move(moments)),
      values_(context, values_of(buckets), names_of(buckets)),
      own_(buckets.size()),
      kind_count_(count),
      order_(order),
      works_(buckets.size() * (1 + count)) {}

MomentAverages::Kind MomentAverages::make_kind(std::size_t kind) const {
  Kind made{.flat = make_states(buckets_), .parts = {}, .averages = {}};
  std::vector<std::string> names;
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    std::vector<at::Tensor>& parts = made.parts.emplace_back();
    for (const Segment& segment : buckets_[b].segments()) {
      parts.push_back(made.flat[b].as_strided(segment.sizes, segment.strides, segment.offset));
    }
    names.push_back(fmt::format("{} of {}", kMomentNames.at(kind), buckets_[b].name()));
  }
  made.averages.emplace(context_, views_of(made.flat), names);
  return made;
}

void MomentAverages::gather(std::size_t b) {
  const at::NoGradGuard no_grad;
  const std::vector<Segment>& segments = buckets_[b].segments();
  own_[b].clear();
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const ParameterMoments& own = own_[b].emplace_back(moments_(segments[i].parameter));
    for (std::size_t kind = 0; kind < kinds_.size(); ++kind) {
      const at::Tensor from = moment(own, kind);
      if (from.defined()) {
        kinds_[kind].parts[b][i].copy_(from);
      } else {
        kinds_[kind].parts[b][i].zero_();
      }
    }
  }
}

void MomentAverages::hand_back() {
  const at::NoGradGuard no_grad;
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    for (std::size_t i = 0; i < own_[b].size(); ++i) {
      for (std::size_t kind = 0; kind < kinds_.size(); ++kind) {
        const at::Tensor to = moment(own_[b][i], kind);
        if (to.defined()) {
          const at::Tensor& average = kinds_[kind].parts[b][i];
          // An average of numbers that are not negative may round to one that is.
          to.copy_(kind == 1 ? average.clamp_min_(0) : average);
        }
      }
    }
    own_[b].clear();
  }
}

template <typename MakeReady>
void MomentAverages::average(const Round& round, const MakeReady& make_ready) {
  while (kinds_.size() < kind_count_) {
    kinds_.push_back(make_kind(kinds_.size()));
  }
  Round of_moments = round;
  of_moments.check = ops::PlanCheck::Trusted;  // as the parameters' call has it
  try {
    run_overlapped_round(context_, works_.size(), works_, [&](std::size_t& issued) {
      for (std::size_t b = 0; b < buckets_.size(); ++b) {
        make_ready(b);
        gather(b);
        ++issued;
        works_[issued - 1] = values_.start(round, b);
        for (Kind& kind : kinds_) {
          ++issued;
          works_[issued - 1] = kind.averages->start(of_moments, b);
        }
      }
    });
  } catch (...) {
    kinds_.clear();  // calls that have timed out go on with theirs
    throw;
  }
  hand_back();
  note_changes(buckets_);
}

void MomentAverages::step(const Round& round, const StepBucket& step_bucket) {
  if (round.averaging == Averaging::Nobody) {
    step_alone(step_bucket);
    return;
  }
  if (order_ == Order::AdaptThenCombine) {
    average(round, [&](std::size_t b) { step_bucket(buckets_[b]); });
    return;
  }
  average(round, [](std::size_t /*b*/) {});
  step_alone(step_bucket);
}

AlgorithmRow with_moment_averages(AlgorithmRow row, MomentAverages::Order order) {
  row.options.push_back({.name = kAverageMoments,
                         .default_value = std::int64_t{0},
                         .meaning =
                             "moments of Adam that are averaged with the parameters: 0 none, "
                             "1 the first, 2 both",
                         .least = 0.0,
                         .below = 3.0});
  const auto averages_moments = [](const DistributedOptimizerOptions& options) {
    return number_of(options, kAverageMoments) != 0.0;
  };
  row.why_unfit_schedule = [averages_moments, plain = std::move(row.why_unfit_schedule)](
                               const DistributedOptimizerOptions& options,
                               const Schedule& schedule) {
    const std::string problem =
        averages_moments(options) ? why_unfit_moments(options, schedule) : std::string();
    return problem.empty() ? plain(options, schedule) : problem;
  };
  row.why_unfit_plan = [plain = std::move(row.why_unfit_plan)](
                           const DistributedOptimizerOptions& options, const NeighborPlan& plan,
                           const NeighborPlan* before) {
    const std::string problem = why_unfit_moments_plan(options, plan);
    return problem.empty() ? plain(options, plan, before) : problem;
  };
  row.make = [averages_moments, order,
              plain = std::move(row.make)](AlgorithmParts parts) -> std::unique_ptr<Algorithm> {
    if (!averages_moments(parts.options)) {
      return plain(std::move(parts));
    }
    if (const std::string problem = why_no_moments_beside(parts.options); !problem.empty()) {
      throw InvalidArgument(
          fmt::format("rank {}, {}: {}", parts.context.rank(), parts.options.call_name, problem));
    }
    return std::make_unique<MomentAverages>(parts.context, parts.buckets, parts.options.moments,
                                            static_cast<std::size_t>(parts.number(kAverageMoments)),
                                            order);
  };
  return row;
}

}  // namespace bluefog::optimizers
