#include "bluefog_cpp/log.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace bluefog {
namespace {

std::string written(const LogOptions& options, LogLevel level) {
  testing::internal::CaptureStderr();
  Logger(options).log(level, "a message with {braces}");
  return testing::internal::GetCapturedStderr();
}

TEST(Logger, PrefixesRankAndLevel) {
  EXPECT_EQ(written({LogLevel::Info, true, 3}, LogLevel::Info),
            "[rank 3] [info] a message with {braces}\n");
}

TEST(Logger, WithoutRank) {
  EXPECT_EQ(written({LogLevel::Info, true, -1}, LogLevel::Error),
            "[error] a message with {braces}\n");
}

TEST(Logger, ShowsTheTimeUnlessHidden) {
  EXPECT_THAT(
      written({LogLevel::Info, false, 0}, LogLevel::Info),
      testing::MatchesRegex("\\[....-..-.. ..:..:......\\] \\[rank 0\\] \\[info\\] a message.*\n"));
}

TEST(Logger, HidesLowerLevels) {
  constexpr LogLevel kLevels[] = {LogLevel::Trace,   LogLevel::Debug, LogLevel::Info,
                                  LogLevel::Warning, LogLevel::Error, LogLevel::Fatal};
  for (const LogLevel lowest : kLevels) {
    for (const LogLevel level : kLevels) {
      EXPECT_EQ(Logger({lowest, true, 0}).shows(level), level >= lowest);
      EXPECT_EQ(written({lowest, true, 0}, level).empty(), level < lowest);
    }
  }
}

TEST(Logger, DefaultShowsWarnings) {
  const Logger logger;
  EXPECT_FALSE(logger.shows(LogLevel::Info));
  EXPECT_TRUE(logger.shows(LogLevel::Warning));
}

}  // namespace
}  // namespace bluefog
