#include "tests/support/ranks.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <exception>
#include <utility>
#include <vector>

#include "bluefog_cpp/context/context_core.hpp"
#include "ops/collectives.hpp"

namespace bluefog::testing {

void run_as_rank(std::shared_ptr<Bootstrap> bootstrap, const Ranks& ranks, Layout layout,
                 const std::function<void(Context&)>& body) {
  const int rank = bootstrap->rank();
  const int size = bootstrap->size();
  SCOPED_TRACE(fmt::format("rank {} of {}", rank, describe(size, layout)));
  try {
    Settings settings = Settings::from_environment();
    if (layout == Layout::TwoHosts) {
      settings.host_id = rank % 2 == 0 ? "even" : "odd";
    } else if (layout == Layout::NetworkOnly) {
      settings.transport = TransportChoice::Mpi;
    }
    if (ranks.settings) {
      ranks.settings(settings, rank);
    }
    const auto context = Context::create(std::move(bootstrap), settings);
    body(*context);
    if (ranks.expect_usable) {
      expect_usable(*context);
    }
  } catch (const std::exception& e) {
    ADD_FAILURE() << "an exception left the body: " << e.what();
  }
}

void expect_usable(Context& context) {
  ops::barrier(context);
  std::vector<float> values{1.0F, static_cast<float>(context.rank())};
  ops::allreduce(context, {.data = values.data(), .count = 2}, {.reduction = ops::Reduction::Sum});
  const int n = context.size();
  EXPECT_EQ(values[0], static_cast<float>(n));
  EXPECT_EQ(values[1], static_cast<float>(n * (n - 1) / 2));
  std::vector<float> large(5000, static_cast<float>(context.rank()));
  ops::broadcast(context, {.data = large.data(), .count = 5000}, n - 1);
  EXPECT_EQ(large, std::vector<float>(5000, static_cast<float>(n - 1)));
  // The barrier keeps each rank until all are done.
  ops::barrier(context);
}

void meet(Context& context) {
  context.core().bootstrap().barrier(Deadline::after(std::chrono::minutes(1)));
}

std::string describe(int size, Layout layout) {
  switch (layout) {
    case Layout::OneHost:
      return fmt::format("{} ranks, one host", size);
    case Layout::TwoHosts:
      return fmt::format("{} ranks, two hosts", size);
    case Layout::NetworkOnly:
      return fmt::format("{} ranks, network only", size);
  }
  return {};
}

}  // namespace bluefog::testing
