// Times hierarchical_neighbor_allreduce against neighbor_allreduce on the same graph of machines,
// and counts the bytes that leave a host. All of them take turns in one run; the slowest rank
// counts; medians are printed. hierarchical_benchmark.sh runs it on hosts with a slow link.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "benchmarks/rounds.hpp"
#include "bluefog_cpp/error.hpp"
#include "ops/collectives.hpp"
#include "ops/hierarchical_neighbor_allreduce.hpp"
#include "ops/neighbor_allreduce.hpp"
#include "topology/static_graphs.hpp"

namespace {

using bluefog::BufferView;
using bluefog::Context;
using bluefog::MachineLayout;
using bluefog::NeighborPlan;
using bluefog::benchmarks::quantile;
using bluefog::benchmarks::slowest;
using bluefog::benchmarks::time_us;

enum class Way { Hierarchical, FlatCounterparts, FlatAll };
constexpr std::array<std::string_view, 3> kWays{"hierarchical", "flat, counterparts", "flat, all"};
constexpr std::array kAllWays{Way::Hierarchical, Way::FlatCounterparts, Way::FlatAll};

/// Machines in a ring, each with its two neighbours.
NeighborPlan machine_plan(const Context& context) {
  const MachineLayout& machines = context.machines();
  return bluefog::topology::ring(machines.machine_count())
      .plan_for(machines.machine_of(context.rank()));
}

/// The plan of a rank that hears all ranks of its machine and, of neighbouring machines, either the
/// rank of the same place or all ranks, which gives the result of the hierarchical operation.
NeighborPlan flat_plan(const Context& context, Way way) {
  const MachineLayout& machines = context.machines();
  const int own_machine = machines.machine_of(context.rank());
  const auto machine = machine_plan(context);
  NeighborPlan plan = NeighborPlan::alone(context.rank(), context.size());
  const auto add = [&](int rank, double weight) {
    if (rank != context.rank()) {
      plan.sources.push_back({.rank = rank, .weight = weight});
      plan.destinations.push_back({.rank = rank});
    }
  };
  const double inside = machine.self_weight / static_cast<double>(context.local_size());
  plan.self_weight = inside;
  for (const int rank : machines.ranks_of(own_machine)) {
    add(rank, inside);
  }
  for (const auto& source : machine.sources) {
    const auto& there = machines.ranks_of(source.rank);
    if (way == Way::FlatCounterparts) {
      add(there[static_cast<std::size_t>(context.local_rank())], source.weight);
      continue;
    }
    for (const int rank : there) {
      add(rank, source.weight / static_cast<double>(there.size()));
    }
  }
  std::ranges::sort(plan.sources, {}, &bluefog::WeightedRank::rank);
  std::ranges::sort(plan.destinations, {}, &bluefog::WeightedRank::rank);
  return plan;
}

/// Payload that leaves a machine of L ranks per call of n bytes, with d machines to send to
/// (docs/ops.md).
std::int64_t payload_of(const Context& context, Way way, std::int64_t bytes) {
  const auto ranks = static_cast<std::int64_t>(context.local_size());
  const auto machines = static_cast<std::int64_t>(machine_plan(context).destinations.size());
  switch (way) {
    case Way::Hierarchical:
      return machines * bytes;
    case Way::FlatCounterparts:
      return machines * ranks * bytes;
    case Way::FlatAll:
      return machines * ranks * ranks * bytes;
  }
  return 0;
}

/// Bytes that this host's interfaces, but for the loopback, have sent; -1 if none is known.
std::int64_t sent_bytes() {
  std::ifstream file("/proc/self/net/dev");
  std::int64_t sum = -1;
  for (std::string line; std::getline(file, line);) {
    const auto colon = line.find(':');
    if (colon == std::string::npos || line.find("lo:") != std::string::npos) {
      continue;
    }
    std::istringstream fields(line.substr(colon + 1));
    std::array<std::int64_t, 9> values{};  // the ninth is what was sent
    for (auto& value : values) {
      fields >> value;
    }
    sum = std::max<std::int64_t>(sum, 0) + values.back();
  }
  return sum;
}

/// The calls of one size: each way's time and traffic.
class Measurement {
 public:
  Measurement(Context& context, std::int64_t bytes)
      : context_(context),
        x_(static_cast<std::size_t>(bytes) / sizeof(float), 1.0F),
        machines_(std::make_shared<const NeighborPlan>(machine_plan(context))) {
    for (const Way way : kAllWays) {
      flat_.push_back(std::make_shared<const NeighborPlan>(flat_plan(context, way)));
    }
  }

  void call(Way way) {
    const BufferView view{.data = x_.data(), .count = static_cast<std::int64_t>(x_.size())};
    if (way == Way::Hierarchical) {
      bluefog::ops::hierarchical_neighbor_allreduce(context_, view, machines_);
    } else {
      bluefog::ops::neighbor_allreduce(context_, view, flat_[static_cast<std::size_t>(way)]);
    }
  }

  /// Medians by way, in ms.
  std::array<double, kWays.size()> times(int rounds) {
    std::array<std::vector<double>, kWays.size()> all;
    for (int round = -1; round < rounds; ++round) {
      for (const Way way : kAllWays) {
        bluefog::ops::barrier(context_);
        const double time = time_us([&] { call(way); });
        if (round >= 0) {
          all[static_cast<std::size_t>(way)].push_back(time / 1e3);
        }
      }
    }
    std::array<double, kWays.size()> medians{};
    for (std::size_t i = 0; i < kWays.size(); ++i) {
      medians[i] = quantile(slowest(context_, all[i]), 0.5);
    }
    return medians;
  }

  /// Bytes that leave this host per call, or -1.
  double sent_per_call(Way way, int calls) {
    // Bytes under way, acknowledgements too, arrive first.
    constexpr std::chrono::milliseconds kQuiet{200};
    const auto count = [&] {
      bluefog::ops::barrier(context_);
      std::this_thread::sleep_for(kQuiet);
      const std::int64_t sent = sent_bytes();
      bluefog::ops::barrier(context_);
      return sent;
    };
    const std::int64_t before = count();
    for (int i = 0; i < calls; ++i) {
      call(way);
    }
    const std::int64_t after = count();
    return before < 0 ? -1.0 : static_cast<double>(after - before) / calls;
  }

 private:
  Context& context_;
  std::vector<float> x_;
  std::shared_ptr<const NeighborPlan> machines_;
  std::vector<std::shared_ptr<const NeighborPlan>> flat_;
};

/// @return whether the traffic agrees with the formula.
bool measure(Context& context, std::int64_t bytes, int rounds) {
  // Headers of segments of 1448 bytes are 66 bytes long; fewer if the device cuts segments itself.
  constexpr double kMostHeaders = 0.05;
  Measurement measurement(context, bytes);
  const auto medians = measurement.times(rounds);
  bool agrees = true;
  for (const Way way : kAllWays) {
    const auto index = static_cast<std::size_t>(way);
    const double sent = measurement.sent_per_call(way, 3);
    const auto payload = static_cast<double>(payload_of(context, way, bytes));
    const double headers = sent / payload - 1.0;
    const bool is_known = sent >= 0.0 && payload > 0.0;
    agrees &= !is_known || (headers >= 0.0 && headers <= kMostHeaders);
    if (context.rank() == 0) {
      fmt::print("{:>10} B  {:<18}  median {:>8.1f} ms, hierarchical {:.2f} of it", bytes,
                 kWays[index], medians[index], medians[0] / medians[index]);
      if (is_known) {
        fmt::print("; a host sends {:.0f} B, the formula's {:.0f} B and {:.2f} %", sent, payload,
                   100.0 * headers);
      }
      fmt::print("\n");
      std::fflush(stdout);
    }
  }
  return agrees;
}

int run(int argc, char** argv) {
  std::vector<std::int64_t> sizes{1048576, 4194304};
  int rounds = 9;
  CLI::App app{"hierarchical against flat neighbour averages"};
  app.add_option("--sizes", sizes, "Bytes per rank, multiples of 4")->delimiter(',');
  app.add_option("--rounds", rounds, "Calls of each kind per size")->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);

  const auto context = Context::create();
  for (int machine = 0; machine < context->machines().machine_count(); ++machine) {
    if (context->machines().ranks_of(machine).size() != context->machines().ranks_of(0).size()) {
      throw bluefog::InvalidArgument("expected machines of as many ranks each");
    }
  }
  bool agrees = true;
  for (const std::int64_t bytes : sizes) {
    agrees &= measure(*context, bytes, rounds);
  }
  if (!agrees) {
    fmt::print(stderr, "rank {}: what this host sent does not agree with the formula\n",
               context->rank());
  }
  return agrees ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  return bluefog::benchmarks::run_program("hierarchical_benchmark", run, argc, argv);
}
