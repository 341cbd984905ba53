// Random calls from several threads of all ranks, for as long as asked: neighbour averages of all
// kinds, gossip of pairs, and windows, inside the host and as if between two hosts. Every result
// is compared with its exact value; memory, descriptors and /dev/shm must stay as they are after
// a while. Prints one line per report and rank, and "soak: fine" at the end.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <chrono>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "bluefog_cpp/context/context_core.hpp"
#include "ops/collectives.hpp"
#include "tests/soak/soak.hpp"

namespace bluefog::soak {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  double minutes = 10.0;
  std::uint64_t seed = 1;
  double report_seconds = 30.0;
};

/// Prints `failure` and ends the process at once: its threads may wait for ranks that wait for this
/// one.
[[noreturn]] void give_up(std::string_view failure) {
  fmt::print(stderr, "soak: {}\n", failure);
  std::fflush(nullptr);
  ::_exit(1);
}

/// Threads that run until they end by themselves.
class Threads {
 public:
  void add(std::string name, std::function<void()> body) {
    threads_.emplace_back([name = std::move(name), body = std::move(body)] {
      try {
        body();
      } catch (const std::exception& e) {
        give_up(fmt::format("{}: {}", name, e.what()));
      }
    });
  }

  void join() { threads_.clear(); }

 private:
  std::vector<std::jthread> threads_;
};

/// Contexts of all threads, made in the same order on all ranks.
std::vector<std::shared_ptr<Context>> make_contexts(const std::shared_ptr<Context>& whole,
                                                    const Settings& settings) {
  // Machines of two ranks, if there are more.
  Settings one_host = settings;
  one_host.nodes_per_machine = whole->size() > 2 ? 2 : 1;
  Settings two_hosts = settings;
  two_hosts.host_id = whole->rank() % 2 == 0 ? "even" : "odd";
  const Deadline deadline = Deadline::after(settings.timeout);
  const auto here = Context::create(whole->core().bootstrap().duplicate(deadline), one_host);
  const auto apart = Context::create(whole->core().bootstrap().duplicate(deadline), two_hosts);
  return {here,  here->duplicate(),  here->duplicate(),
          apart, apart->duplicate(), apart->duplicate()};
}

void report(const Context& context, const Run& run, double seconds, const Resources& resources) {
  std::string counts;
  for (std::size_t i = 0; i < kKindNames.size(); ++i) {
    counts += fmt::format(" {} {}", kKindNames[i], run.done[i].load());
  }
  fmt::print(
      "soak: rank {} at {:.0f} s: {:.1f} MiB, {} descriptors, {} threads, {} in /dev/shm;{}\n",
      context.rank(), seconds, resources.rss_mib, resources.descriptors, resources.threads,
      resources.shm_entries, counts);
  std::fflush(stdout);
}

/// The growth allowed after the first quarter, which lasted `seconds`. In the first minute messages
/// of other sizes take memory that is used again, threads of the library begin with the first call
/// that nobody waits for, and MPI opens segments at first use. Later only the second threads of
/// windows come and go, and allocators keep some of the memory that they were given.
Resources slack_after(double seconds) {
  return seconds >= 60.0
             ? Resources{.rss_mib = 8.0, .descriptors = 0, .threads = 2, .shm_entries = 0}
             : Resources{.rss_mib = 48.0, .descriptors = 8, .threads = 12, .shm_entries = 8};
}

void check_flat(const Resources& early, const Resources& late, const Resources& slack) {
  if (late.rss_mib > early.rss_mib + slack.rss_mib) {
    throw Wrong(
        fmt::format("memory has grown from {:.1f} to {:.1f} MiB", early.rss_mib, late.rss_mib));
  }
  if (late.descriptors > early.descriptors + slack.descriptors ||
      late.threads > early.threads + slack.threads ||
      late.shm_entries > early.shm_entries + slack.shm_entries) {
    throw Wrong(fmt::format(
        "descriptors, threads, entries of /dev/shm have grown from {}, {}, {} to {}, {}, {}",
        early.descriptors, early.threads, early.shm_entries, late.descriptors, late.threads,
        late.shm_entries));
  }
}

void soak(const Options& options) {
  const Settings settings = Settings::from_environment();
  const auto context = Context::create(settings);
  if (context->size() < 2 || (context->size() & (context->size() - 1)) != 0) {
    throw Wrong(fmt::format("expected 2, 4, 8, … ranks, so that all sums are exact, found {}",
                            context->size()));
  }
  fmt::print("soak: rank {} is process {}, seed {}\n", context->rank(), ::getpid(), options.seed);
  std::fflush(stdout);  // whoever reads it by a pipe kills this process
  Run run{.seed = options.seed};
  const auto contexts = make_contexts(context, settings);
  const auto start = Clock::now();
  const auto after = [start](double seconds) {
    return start +
           std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  };
  Threads threads;
  constexpr std::array kBodies{average, gossip, use_windows};
  constexpr std::array<std::string_view, 3> kNames{"averages", "gossip", "windows"};
  for (std::size_t i = 0; i < contexts.size(); ++i) {
    threads.add(fmt::format("rank {}, {} {}", context->rank(), kNames[i % 3],
                            i < 3 ? "on one host" : "between two hosts"),
                [&run, own = contexts[i], body = kBodies[i % 3], i] {
                  body(*own, run, Dice(run.seed, i, own->rank()));
                });
  }
  const double seconds = 60.0 * options.minutes;
  std::this_thread::sleep_until(after(seconds / 4));
  const Resources early = Resources::now();
  report(*context, run, seconds / 4, early);
  for (double next = seconds / 4 + options.report_seconds; next < seconds;
       next += options.report_seconds) {
    std::this_thread::sleep_until(after(next));
    report(*context, run, next, Resources::now());
  }
  std::this_thread::sleep_until(after(seconds));
  const Resources late = Resources::now();
  run.should_stop = true;
  threads.join();
  report(*context, run, seconds, late);
  check_flat(early, late, slack_after(seconds / 4));
  ops::barrier(*context);
  if (context->rank() == 0) {
    fmt::print("soak: fine\n");
  }
}

}  // namespace
}  // namespace bluefog::soak

int main(int argc, char** argv) {
  bluefog::soak::Options options;
  CLI::App app{"Random calls of all kinds, whose results are known"};
  app.add_option("--minutes", options.minutes, "How long")->check(CLI::PositiveNumber);
  app.add_option("--seed", options.seed, "Of the random numbers");
  app.add_option("--report", options.report_seconds, "Seconds between reports")
      ->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  try {
    bluefog::soak::soak(options);
    return 0;
  } catch (const std::exception& e) {
    bluefog::soak::give_up(e.what());
  }
}
