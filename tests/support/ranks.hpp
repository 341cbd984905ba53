#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bluefog_cpp/context.hpp"
#include "bluefog_cpp/settings.hpp"

namespace bluefog::testing {

/// How the ranks of a run reach each other.
enum class Layout {
  OneHost,
  /// Even and odd ranks pretend to be on two hosts.
  TwoHosts,
  /// No shared memory, also inside the host.
  NetworkOnly,
};

/// The ranks on which a body runs.
struct Ranks {
  int at_least = 1;
  int at_most = 8;
  /// The numbers of threads that this process tries; processes are as many as were started.
  std::vector<int> thread_counts{1, 2, 3, 4, 8};
  std::vector<Layout> layouts{Layout::OneHost, Layout::TwoHosts, Layout::NetworkOnly};
  /// Changes the settings from the environment, on each rank.
  std::function<void(Settings&, int rank)> settings{};
  /// Whether `settings` tells each rank its host: possible only if all are on one.
  bool pretends_hosts = false;
  /// Whether every rank makes a few calls after the body, to show that the context is still good.
  bool expect_usable = true;
};

/// Runs `body` as every rank of a new context, again for every number of ranks and every layout
/// that this rung has: threads of this process (fabric), or the processes of this launch (mpi).
/// An exception that leaves the body is a test failure.
/// A test does not count on a launch with too few or too many ranks for it; if no number of ranks
/// fits, it fails.
void on_ranks(const Ranks& ranks, const std::function<void(Context&)>& body);
inline void on_ranks(const std::function<void(Context&)>& body) { on_ranks(Ranks{}, body); }

/// The numbers of threads that `ranks` runs on: of them those in THREAD_RANKS ("2,4") alone, or the
/// first one where none is.
[[nodiscard]] std::vector<int> thread_counts_of(const Ranks& ranks);

/// The settings with which threads go on without one that is gone, and with one that joins.
[[nodiscard]] Settings surviving_settings();
/// `size` threads run `body`, and `applicants` others, which ask to join them, `joining`, each with
/// its context. @param settings of all.
void with_applicants(int size, const std::function<void(Context&)>& body, int applicants,
                     const std::function<void(Context&)>& joining,
                     const Settings& settings = surviving_settings());

/// One rank's share of `on_ranks`, given its bootstrap; for the drivers.
void run_as_rank(std::shared_ptr<Bootstrap> bootstrap, const Ranks& ranks, Layout layout,
                 const std::function<void(Context&)>& body);

/// Barrier, allreduce and broadcast give the right results.
void expect_usable(Context& context);

/// Every rank waits here for all others, outside of the context's calls. A TimeoutError after a
/// minute: a rank whose test has failed does not come.
void meet(Context& context);

/// "8 ranks, two hosts".
[[nodiscard]] std::string describe(int size, Layout layout);

}  // namespace bluefog::testing
