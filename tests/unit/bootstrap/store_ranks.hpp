#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "bluefog_cpp/store/memory_store.hpp"
#include "bluefog_cpp/store_bootstrap.hpp"

/// Ranks that are threads, and meet over a store in memory.
namespace bluefog::testing_store {

inline Deadline soon() { return Deadline::after(std::chrono::seconds(60)); }

inline Settings quiet() {
  Settings settings;
  settings.log_level = LogLevel::Fatal;
  return settings;
}

using SharedContents = std::shared_ptr<MemoryStore::Contents>;

inline SharedContents make_contents() { return std::make_shared<MemoryStore::Contents>(); }

inline std::shared_ptr<Bootstrap> join(const SharedContents& contents, const StorePlace& place,
                                       Deadline deadline = soon()) {
  return make_store_bootstrap(std::make_shared<MemoryStore>(contents), place, quiet(), deadline);
}

// Runs `body` as every rank, and gives the text of each one's error, empty where there was none.
inline std::vector<std::string> on_ranks(int size, const std::function<void(int rank)>& body) {
  std::vector<std::string> errors(static_cast<std::size_t>(size));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (const Error& error) {
        errors[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  }
  threads.clear();
  return errors;
}

inline void expect_none(const std::vector<std::string>& errors) {
  for (const std::string& error : errors) {
    EXPECT_EQ(error, "");
  }
}

inline Bootstrap::Blob blob_of(std::size_t bytes, int value) {
  return Bootstrap::Blob(bytes, static_cast<std::byte>(value));
}

}  // namespace bluefog::testing_store
