#pragma once

#include <gtest/gtest.h>

#include <string>

namespace bluefog::testing {

/// For the words of GTEST_SKIP in a test that can never run on this number of ranks: it counts at
/// the numbers where it can, and fails the suite where it ran at none (tests/run_ranks.py).
inline std::string other_ranks(const std::string& needed) {
  ::testing::Test::RecordProperty("other_ranks", needed);
  return "needs " + needed;
}

}  // namespace bluefog::testing
