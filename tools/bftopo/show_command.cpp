#include <fmt/format.h>

#include <algorithm>

#include "tools/bftopo/commands.hpp"
#include "tools/bftopo/json_values.hpp"

namespace bluefog::bftopo {
namespace {

constexpr std::int64_t kMaxStepsPrinted = 40;

std::string weighted(const std::vector<WeightedRank>& list) {
  if (list.empty()) {
    return "nobody";
  }
  std::string text;
  for (const WeightedRank& entry : list) {
    text += fmt::format("{}{} ({:.4g})", text.empty() ? "" : ", ", entry.rank, entry.weight);
  }
  return text;
}

std::string ranks_only(const std::vector<WeightedRank>& list) {
  if (list.empty()) {
    return "nobody";
  }
  std::string text;
  for (const WeightedRank& entry : list) {
    text += fmt::format("{}{}", text.empty() ? "" : ", ", entry.rank);
  }
  return text;
}

/// First step and the one past the last.
struct StepRange {
  std::int64_t first;
  std::int64_t end;
};

StepRange steps_of(const Options& options, const Schedule& schedule) {
  if (options.step) {
    return {*options.step, *options.step + 1};
  }
  return {0, std::min(schedule.period_steps(), kMaxStepsPrinted)};
}

std::string ceca_words(const topology::Ceca& ceca, std::int64_t step) {
  if (ceca.steps().empty()) {
    return "";
  }
  const topology::CecaStep& now =
      ceca.steps()[static_cast<std::size_t>(step % std::ssize(ceca.steps()))];
  return fmt::format(", all send {}, d ← {:.4g} d + {:.4g} m, s ← {:.4g} s + {:.4g} m",
                     now.sends == topology::CecaStep::Sends::WithOwn ? "d" : "s", now.own,
                     1.0 - now.own, now.others, 1.0 - now.others);
}

Json plan_json(const NeighborPlan& plan) {
  Json sources = Json::array();
  for (const WeightedRank& entry : plan.sources) {
    sources.push_back({entry.rank, entry.weight});
  }
  Json destinations = Json::array();
  for (const WeightedRank& entry : plan.destinations) {
    destinations.push_back(entry.rank);
  }
  return {{"rank", plan.rank},
          {"self_weight", plan.self_weight},
          {"src_weights", sources},
          {"destinations", destinations}};
}

std::string show_json(const Options& options, const Subject& subject, const Schedule& schedule) {
  Json json{
      {"topology", subject.name}, {"description", subject.description}, {"n", schedule.size()},
      {"without", subject.lost},  {"period", schedule.period_steps()},  {"steps", Json::array()}};
  const StepRange range = steps_of(options, schedule);
  for (std::int64_t step = range.first; step < range.end; ++step) {
    Json plans = Json::array();
    for (int rank = 0; rank < std::min(schedule.size(), options.rank_limit); ++rank) {
      plans.push_back(plan_json(*schedule.plan_for(rank, step)));
    }
    json["steps"].push_back({{"step", step}, {"ranks", plans}});
  }
  return json.dump(2) + "\n";
}

}  // namespace

std::string show_text(const Options& options, const Subject& subject) {
  const Schedule schedule = subject.schedule();
  if (options.json) {
    return show_json(options, subject, schedule);
  }
  std::string text = fmt::format("{}: {}; {}, period {}\n", subject.name, subject.description,
                                 subject.count_words(), schedule.period_steps());
  const StepRange range = steps_of(options, schedule);
  const int ranks = std::min(schedule.size(), options.rank_limit);
  for (std::int64_t step = range.first; step < range.end; ++step) {
    text +=
        fmt::format("step {}{}\n", step, subject.ceca() ? ceca_words(*subject.ceca(), step) : "");
    for (int rank = 0; rank < ranks; ++rank) {
      const auto plan = schedule.plan_for(rank, step);
      text += fmt::format("  {:>5}  self {:.4g}, hears {}, sends to {}\n", rank, plan->self_weight,
                          weighted(plan->sources), ranks_only(plan->destinations));
    }
    if (ranks < schedule.size()) {
      text += fmt::format("  … {} ranks more (--ranks)\n", schedule.size() - ranks);
    }
  }
  if (!options.step && range.end < schedule.period_steps()) {
    text += fmt::format("… {} steps more (--step)\n", schedule.period_steps() - range.end);
  }
  return text;
}

std::string list_text(const Options& options) {
  if (options.json) {
    Json json = Json::array();
    for (const topology::Family& family : topology::families()) {
      json.push_back(
          {{"name", std::string(family.name)},
           {"description", std::string(family.description)},
           {"options", std::vector<std::string>(family.options.begin(), family.options.end())}});
    }
    return json.dump(2) + "\n";
  }
  std::string text;
  for (const topology::Family& family : topology::families()) {
    text += fmt::format("{:<25}{}", family.name, family.description);
    for (const std::string_view option : family.options) {
      text += fmt::format(" [--{}]", option);
    }
    text += "\n";
  }
  return text;
}

}  // namespace bluefog::bftopo
