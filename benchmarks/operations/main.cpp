// Times this project's operations, Open MPI's and gloo's own calls and a memcpy of the same size,
// which all ranks do at the same time: the limit on one host. All take turns within one run, on several
// buffers in turn (16, or 64 MiB where that is less); the buffer is rewritten before each call, as
// a training step does; a call lasts until all ranks have ended it. Short messages are timed several
// calls at once, rewriting included: one alone is not much longer than reading the clock.
//
//   bfrun -np 2 operations_benchmark --sizes 4,1048576 --json
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <iterator>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "benchmarks/operations/buffers.hpp"
#include "benchmarks/operations/contestant.hpp"
#include "benchmarks/operations/measurement.hpp"
#include "benchmarks/rounds.hpp"
#include "bluefog_cpp/base/system_limits.hpp"
#include "ops/collectives.hpp"

namespace {

using namespace bluefog::benchmarks;  // NOLINT: a program, not a header
using bluefog::Context;
using bluefog::Dtype;
using bluefog::MachineLayout;

struct Options {
  std::vector<std::int64_t> sizes{4, 65536, 1048576, 16777216, 104857600};
  std::string dtype = "float32";
  std::vector<std::string> ops;
  double seconds = 2.0;
  double pause_ms = 0;
  std::string without_mpi;
  std::string without_gloo;
  bool as_json = false;
};

std::vector<Contestant> contestants_of(const Setting& setting,
                                       const std::vector<std::string>& wanted) {
  // MPI's contestants come first, while no other thread uses MPI: beside a window's thread Open MPI
  // 5.0 was seen not to come back from MPI_Comm_dup between hosts.
  std::vector<Contestant> of_mpi = mpi_contestants(setting);
  std::vector<Contestant> all = own_contestants(setting);
  std::ranges::move(of_mpi, std::back_inserter(all));
  std::ranges::move(gloo_contestants(setting), std::back_inserter(all));
  const auto is_unwanted = [&](const Contestant& contestant) {
    return !wanted.empty() && std::ranges::none_of(wanted, [&](const std::string& word) {
      return contestant.op.find(word) != std::string::npos;
    });
  };
  std::erase_if(all, is_unwanted);
  std::ranges::move(memcpy_contestants(), std::back_inserter(all));
  return all;
}

/// Removes the contestants that all ranks' memory does not suffice for; the last one, the limit, is
/// served first. @return the removed ones.
std::vector<Contestant> take_out_too_large(const Setting& setting,
                                           std::vector<Contestant>& contestants) {
  // A fifth of the memory is left to others, and to MPI.
  constexpr double kShare = 0.8;
  Context& context = setting.context;
  const MachineLayout& hosts = context.hosts();
  const auto ranks = static_cast<double>(hosts.ranks_of(hosts.machine_of(context.rank())).size());
  double budget = kShare * static_cast<double>(bluefog::available_memory()) / ranks;
  bluefog::ops::broadcast(context, {.data = &budget, .count = 1, .dtype = Dtype::Float64}, 0);
  const double buffer =
      static_cast<double>(setting.count) * static_cast<double>(bluefog::size_of(setting.dtype));
  const double all_buffers = Buffers::bytes_of(setting);
  double used = all_buffers + contestants.back().memory * buffer;
  bool has_shared = false;
  const bool fits_at_all = used <= budget;
  std::vector<Contestant> too_large;
  std::erase_if(contestants, [&](Contestant& contestant) {
    if (fits_at_all && &contestant == &contestants.back()) {
      return false;
    }
    const double more = contestant.memory * buffer +
                        (contestant.takes_shared_buffers && !has_shared ? all_buffers : 0.0);
    if (fits_at_all && used + more <= budget) {
      used += more;
      has_shared |= contestant.takes_shared_buffers;
      return false;
    }
    too_large.push_back(contestant);
    return true;
  });
  return too_large;
}

/// What did not run, of a peer as a whole where no operation is added.
nlohmann::json not_run(const Setting& setting, std::string_view peer, std::string_view reason) {
  return {{"peer", peer},
          {"ranks", setting.context.size()},
          {"device", "cpu"},
          {"dtype", bluefog::name_of(setting.dtype)},
          {"bytes", setting.count * static_cast<std::int64_t>(bluefog::size_of(setting.dtype))},
          {"not_run", reason}};
}

void print_left_out(const Setting& setting, const std::vector<Contestant>& too_large,
                    bool as_json) {
  const auto bytes = setting.count * static_cast<std::int64_t>(bluefog::size_of(setting.dtype));
  const std::pair<const char*, std::string> peers[] = {{"Open MPI", why_no_mpi(setting)},
                                                       {"gloo from C++", why_no_gloo(setting)}};
  for (const auto& [peer, reason] : peers) {
    if (!reason.empty() && as_json) {
      fmt::print("{}\n", not_run(setting, peer, reason).dump());
    }
  }
  for (const Contestant& contestant : too_large) {
    const std::string reason = fmt::format(
        "its memory at {} bytes, beside that of the operations before it, is more than is free",
        bytes);
    if (as_json) {
      nlohmann::json record = not_run(setting, contestant.peer, reason);
      record["op"] = contestant.op;
      fmt::print("{}\n", record.dump());
    } else {
      fmt::print("{:>11} B  {:<12} {:<50} not run: {}\n", bytes, contestant.peer, contestant.op,
                 reason);
    }
  }
}

void print(const Setting& setting, const std::vector<Measurement>& measurements, bool as_json) {
  const auto bytes = setting.count * static_cast<std::int64_t>(bluefog::size_of(setting.dtype));
  double limit_us = std::numeric_limits<double>::infinity();
  for (const Measurement& measurement : measurements) {
    if (measurement.contestant->is_limit) {
      limit_us = std::min(limit_us, measurement.median_us);
    }
  }
  for (const Measurement& measurement : measurements) {
    const Contestant& contestant = *measurement.contestant;
    // Bytes per microsecond are 10⁶ bytes per second.
    const double gbps = static_cast<double>(bytes) / measurement.median_us * 1e-3;
    if (as_json) {
      fmt::print("{}\n", nlohmann::json{{"peer", contestant.peer},
                                        {"op", contestant.op},
                                        {"language", "C++"},
                                        {"ranks", setting.context.size()},
                                        {"hosts", setting.context.hosts().machine_count()},
                                        {"device", "cpu"},
                                        {"dtype", bluefog::name_of(setting.dtype)},
                                        {"bytes", bytes},
                                        {"median_us", measurement.median_us},
                                        {"p95_us", measurement.p95_us},
                                        {"cpu_us", measurement.cpu_us},
                                        {"algbw_gbps", gbps},
                                        {"busbw_gbps", gbps * contestant.bus_factor},
                                        {"limit_ratio", measurement.median_us / limit_us}}
                             .dump());
    } else {
      fmt::print(
          "{:>11} B  {:<12} {:<50} {:>11.2f} us  p95 {:>11.2f} us  CPU {:>11.2f} us  {:>7.2f} GB/s  "
          "{:>7.2f}\n",
          bytes, contestant.peer, contestant.op, measurement.median_us, measurement.p95_us,
          measurement.cpu_us, gbps, measurement.median_us / limit_us);
    }
  }
  std::fflush(stdout);
}

int run(int argc, char** argv) {
  Options options;
  const std::map<std::string, Dtype> dtypes{{"float16", Dtype::Float16},
                                            {"bfloat16", Dtype::BFloat16},
                                            {"float32", Dtype::Float32},
                                            {"float64", Dtype::Float64}};
  CLI::App app{"This project's operations, Open MPI's and gloo's own, and a concurrent memcpy"};
  app.add_option("--sizes", options.sizes, "Bytes per rank, multiples of the dtype's size")
      ->delimiter(',')
      ->check(CLI::PositiveNumber);
  app.add_option("--dtype", options.dtype)->check(CLI::IsMember(dtypes));
  app.add_option("--ops", options.ops, "Parts of names; default: all")->delimiter(',');
  app.add_option("--seconds", options.seconds, "Time per size, about")->check(CLI::PositiveNumber);
  app.add_option("--pause-ms", options.pause_ms, "Rest before each timed batch of calls")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--without-mpi", options.without_mpi,
                 "Leaves Open MPI's own calls out, for the reason given");
  app.add_option("--without-gloo", options.without_gloo,
                 "Leaves gloo's calls from C++ out, for the reason given");
  app.add_flag("--json", options.as_json, "One JSON object per line in place of a table");
  CLI11_PARSE(app, argc, argv);

  const auto context = Context::create();
  for (const std::int64_t bytes : options.sizes) {
    const Dtype dtype = dtypes.at(options.dtype);
    const auto element = static_cast<std::int64_t>(bluefog::size_of(dtype));
    const Setting setting{.context = *context,
                          .dtype = dtype,
                          .count = (bytes + element - 1) / element,
                          .without_mpi = options.without_mpi,
                          .without_gloo = options.without_gloo};
    std::vector<Contestant> contestants = contestants_of(setting, options.ops);
    const std::vector<Contestant> too_large = take_out_too_large(setting, contestants);
    if (context->rank() == 0) {
      print_left_out(setting, too_large, options.as_json);
    }
    if (contestants.empty()) {
      continue;
    }
    const std::vector<Measurement> measurements =
        measure(setting, contestants, options.seconds,
                std::chrono::duration<double, std::milli>(options.pause_ms));
    if (context->rank() == 0) {
      print(setting, measurements, options.as_json);
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return bluefog::benchmarks::run_program("operations_benchmark", run, argc, argv);
}
