// Ranks are threads of this process.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bluefog_cpp/thread_bootstrap.hpp"
#include "tests/support/ranks.hpp"

namespace bluefog::testing {

std::vector<int> thread_counts_of(const Ranks& ranks) {
  std::vector<int> sizes = ranks.thread_counts;
  std::erase_if(sizes, [&](int size) { return size < ranks.at_least || size > ranks.at_most; });
  const char* const wanted = std::getenv("THREAD_RANKS");
  if (wanted == nullptr) {
    return sizes;
  }
  const std::string list = std::string(",") + wanted + ",";
  const auto is_spared = [&](int size) {
    return list.find("," + std::to_string(size) + ",") == std::string::npos;
  };
  if (!sizes.empty() && std::ranges::all_of(sizes, is_spared)) {
    sizes.resize(1);
  } else {
    std::erase_if(sizes, is_spared);
  }
  return sizes;
}

Settings surviving_settings() {
  Settings settings = Settings::from_environment();
  settings.on_failure = OnFailure::Shrink;
  settings.log_level = LogLevel::Fatal;
  return settings;
}

void with_applicants(int size, const std::function<void(Context&)>& body, int applicants,
                     const std::function<void(Context&)>& joining, const Settings& settings) {
  auto bootstraps = make_thread_bootstraps(size);
  for (int i = 0; i < applicants; ++i) {
    bootstraps.push_back(make_thread_applicant(*bootstraps.front()));
  }
  std::vector<std::jthread> threads;
  for (auto& bootstrap : bootstraps) {
    threads.emplace_back([&, held = std::move(bootstrap)]() mutable {
      const auto context = Context::create(std::move(held), settings);
      (context->is_applicant() ? joining : body)(*context);
    });
  }
}

void on_ranks(const Ranks& ranks, const std::function<void(Context&)>& body) {
  bool has_run = false;
  const bool other_network = std::getenv("BLUEFOG_NETWORK") != nullptr;
  for (const int size : thread_counts_of(ranks)) {
    has_run = true;
    for (const Layout layout : ranks.layouts) {
      if (size == 1 && layout != ranks.layouts.front()) {
        continue;
      }
      if (other_network && (size == 1 || layout == Layout::OneHost)) {
        continue;  // they have run without the variable
      }
      auto bootstraps = make_thread_bootstraps(size);
      std::vector<std::jthread> threads;
      for (auto& bootstrap : bootstraps) {
        threads.emplace_back([&ranks, &body, layout, own = std::move(bootstrap)]() mutable {
          run_as_rank(std::move(own), ranks, layout, body);
        });
      }
      threads.clear();
      if (::testing::Test::HasFailure()) {
        return;
      }
    }
  }
  EXPECT_TRUE(has_run) << "no number of ranks here is from " << ranks.at_least << " to "
                       << ranks.at_most;
}

}  // namespace bluefog::testing
