#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "ops/collectives.hpp"
#include "ops/hierarchical_neighbor_allreduce.hpp"
#include "ops/neighbor_allreduce.hpp"
#include "ops/pair_gossip.hpp"
#include "tests/soak/soak.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::soak {
namespace {

constexpr int kRoundsPerEpoch = 40;
constexpr std::array<std::int64_t, 6> kCounts{1, 7, 8, 1000, 5000, 60'000};

/// Small whole numbers: with weights that are powers of two, every sum is exact.
double value_of(int rank, std::size_t k, int round) {
  return static_cast<double>((k * 7 + static_cast<std::size_t>(rank * 13 + round)) % 64);
}

std::vector<double> values_of(int rank, std::int64_t count, int round) {
  std::vector<double> values(static_cast<std::size_t>(count));
  for (std::size_t k = 0; k < values.size(); ++k) {
    values[k] = value_of(rank, k, round);
  }
  return values;
}

/// A sum over ranks that a call must come to: the weight of each rank's value.
using Weights = std::vector<double>;

/// A call under way, and its expected result.
struct Call {
  Kind kind = Kind::Static;
  int round = 0;
  std::vector<double> values{};
  Weights weights{};
  Work work{};

  [[nodiscard]] BufferView view() {
    return {.data = values.data(),
            .count = static_cast<std::int64_t>(values.size()),
            .dtype = Dtype::Float64};
  }

  void finish(const Context& context, Run& run) {
    work.wait();
    for (std::size_t k = 0; k < values.size(); ++k) {
      double expected = 0.0;
      for (std::size_t rank = 0; rank < weights.size(); ++rank) {
        expected += weights[rank] * value_of(static_cast<int>(rank), k, round);
      }
      if (values[k] != expected) {
        throw Wrong(fmt::format("rank {}, {} of {} elements, round {}: element {} is {}, not {}",
                                context.rank(), kKindNames[static_cast<std::size_t>(kind)],
                                values.size(), round, k, values[k], expected));
      }
    }
    run.count(kind);
  }
};

/// ½ of the own value, ¼ of each source's.
NeighborPlan with_exact_weights(NeighborPlan plan) {
  plan.self_weight = 0.5;
  for (WeightedRank& source : plan.sources) {
    source.weight = 0.25;
  }
  return plan;
}

NeighborPlan shifted_plan(int rank, int size, int shift) {
  NeighborPlan plan = NeighborPlan::alone(rank, size);
  plan.self_weight = 0.5;
  plan.sources = {{.rank = (rank - shift + size) % size, .weight = 0.25}};
  plan.destinations = {{.rank = (rank + shift) % size, .weight = 2.0}};
  return plan;
}

Weights weights_of(const NeighborPlan& plan, double send_weight) {
  Weights weights(static_cast<std::size_t>(plan.size), 0.0);
  weights[static_cast<std::size_t>(plan.rank)] = plan.self_weight;
  for (const WeightedRank& source : plan.sources) {
    weights[static_cast<std::size_t>(source.rank)] = source.weight * send_weight;
  }
  return weights;
}

void start_flat(Context& context, Call& call, const NeighborPlan& plan, double send_weight,
                Dice& dice) {
  call.weights = weights_of(plan, send_weight);
  ops::NeighborAllreduceOptions options{.name = "flat"};
  if (Dice::roll(dice.common, 4) == 0) {
    options.check = ops::PlanCheck::Checked;
  }
  if (Dice::roll(dice.common, 3) == 0) {
    options.completion = ops::Completion::OnWait;
    options.name.clear();  // those of one name would wait for each other
  }
  call.work = ops::neighbor_allreduce_nonblocking(
      context, call.view(), std::make_shared<const NeighborPlan>(plan), options);
}

void start_hierarchical(Context& context, Call& call) {
  const MachineLayout& machines = context.machines();
  const NeighborPlan plan = with_exact_weights(topology::fully_connected(machines.machine_count())
                                                   .plan_for(machines.machine_of(context.rank())));
  const Weights of_machines = weights_of(plan, 1.0);
  for (int rank = 0; rank < context.size(); ++rank) {
    const int machine = machines.machine_of(rank);
    call.weights.push_back(of_machines[static_cast<std::size_t>(machine)] /
                           static_cast<double>(machines.ranks_of(machine).size()));
  }
  call.work = ops::hierarchical_neighbor_allreduce_nonblocking(
      context, call.view(), std::make_shared<const NeighborPlan>(plan), {.name = "machines"});
}

std::unique_ptr<Call> start(Context& context, int round, Dice& dice) {
  const int size = context.size();
  const int rank = context.rank();
  auto call = std::make_unique<Call>();
  call->kind = static_cast<Kind>(Dice::roll(dice.common, 4));
  call->round = round;
  call->values = values_of(
      rank, kCounts[static_cast<std::size_t>(Dice::roll(dice.common, kCounts.size()))], round);
  switch (call->kind) {
    case Kind::Static:
      start_flat(context, *call, with_exact_weights(topology::exponential(size).plan_for(rank)),
                 1.0, dice);
      break;
    case Kind::Dynamic:
      start_flat(context, *call, shifted_plan(rank, size, 1 + Dice::roll(dice.common, size - 1)),
                 2.0, dice);
      break;
    case Kind::Hierarchical:
      start_hierarchical(context, *call);
      break;
    default:
      call->weights.assign(static_cast<std::size_t>(size), 1.0);
      call->work =
          ops::allreduce_nonblocking(context, call->view(), {.reduction = ops::Reduction::Sum});
  }
  return call;
}

}  // namespace

bool all_stop(Context& context, const Run& run) {
  double votes = run.should_stop ? 1.0 : 0.0;
  ops::allreduce(context, {.data = &votes, .count = 1, .dtype = Dtype::Float64},
                 {.reduction = ops::Reduction::Sum});
  return votes > 0.0;
}

void average(Context& context, Run& run, Dice dice) {
  constexpr std::size_t kMostUnderWay = 3;
  int round = 0;
  do {
    std::vector<std::unique_ptr<Call>> under_way;
    for (int i = 0; i < kRoundsPerEpoch; ++i) {
      under_way.push_back(start(context, ++round, dice));
      while (under_way.size() >
             static_cast<std::size_t>(Dice::roll(dice.common, static_cast<int>(kMostUnderWay)))) {
        const auto which =
            under_way.begin() + Dice::roll(dice.own, static_cast<int>(under_way.size()));
        (*which)->finish(context, run);
        under_way.erase(which);
      }
    }
    for (const auto& call : under_way) {
      call->finish(context, run);
    }
    run.count(Kind::Epoch);
  } while (!all_stop(context, run));
}

void gossip(Context& context, Run& run, Dice dice) {
  std::vector<int> ranks(static_cast<std::size_t>(context.size()));
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    ranks[i] = static_cast<int>(i);
  }
  int round = 0;
  do {
    for (int i = 0; i < kRoundsPerEpoch; ++i) {
      ++round;
      std::ranges::shuffle(ranks, dice.common);
      const auto own = std::ranges::find(ranks, context.rank()) - ranks.begin();
      const int partner = ranks[static_cast<std::size_t>(own ^ 1)];
      const auto count = kCounts[static_cast<std::size_t>(Dice::roll(dice.common, kCounts.size()))];
      Call call{.kind = Kind::PairGossip, .round = round};
      call.values = values_of(context.rank(), count, round);
      call.weights.assign(ranks.size(), 0.0);
      call.weights[static_cast<std::size_t>(context.rank())] = 0.5;
      call.weights[static_cast<std::size_t>(partner)] = 0.5;
      call.work = ops::pair_gossip_nonblocking(context, call.view(), partner, {.name = "pair"});
      call.finish(context, run);
    }
    run.count(Kind::Epoch);
  } while (!all_stop(context, run));
}

}  // namespace bluefog::soak
