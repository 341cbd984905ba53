// Ranks are the processes of this launch.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <memory>

#include "bluefog_cpp/bootstrap/default_bootstrap.hpp"
#include "tests/support/other_ranks.hpp"
#include "tests/support/ranks.hpp"

namespace bluefog::testing {
namespace {

Deadline soon() { return Deadline::after(std::chrono::seconds(30)); }

// The bootstrap serves all tests of the process: launches find each other once.
Bootstrap& launch() {
  static const std::shared_ptr<Bootstrap> bootstrap =
      make_default_bootstrap(Settings::from_environment(), soon());
  return *bootstrap;
}

}  // namespace

void on_ranks(const Ranks& ranks, const std::function<void(Context&)>& body) {
  const int size = launch().size();
  if (size < ranks.at_least || size > ranks.at_most) {
    GTEST_SKIP() << other_ranks(fmt::format("{} to {} ranks", ranks.at_least, ranks.at_most))
                 << ", has " << size;
  }
  if (ranks.pretends_hosts && std::getenv("BF_NETNS_HOSTS") != nullptr) {
    GTEST_SKIP() << other_ranks("one host");
  }
  ::testing::Test::RecordProperty("ran_on_ranks", size);
  // Real hosts need no pretended ones, and OneHost then stands for the hosts as they are.
  const bool has_hosts = std::getenv("BF_NETNS_HOSTS") != nullptr;
  for (const Layout layout : ranks.layouts) {
    if ((size == 1 && layout != ranks.layouts.front()) ||
        (has_hosts && layout == Layout::TwoHosts)) {
      continue;
    }
    run_as_rank(launch().duplicate(soon()), ranks, layout, body);
    launch().barrier(soon());
  }
}

}  // namespace bluefog::testing
