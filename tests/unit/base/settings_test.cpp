#include "bluefog_cpp/settings.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>

#include "bluefog_cpp/error.hpp"

namespace bluefog {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using namespace std::chrono_literals;

Settings read(const std::map<std::string, std::string>& variables) {
  return Settings::from_variables(variables);
}

std::string refusal(const std::string& name, const std::string& value) {
  try {
    (void)read({{name, value}});
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Settings, DefaultsWithoutVariables) {
  const Settings settings = read({});
  EXPECT_EQ(settings.timeout, 600s);
  EXPECT_EQ(settings.heartbeat, 0s);
  EXPECT_EQ(settings.stall_warning, 60s);
  EXPECT_EQ(settings.log_level, LogLevel::Warning);
  EXPECT_FALSE(settings.log_hide_time);
  EXPECT_EQ(settings.timeline, "");
  EXPECT_EQ(settings.fusion_threshold_bytes, 26214400);
  EXPECT_EQ(settings.host_id, "");
  EXPECT_EQ(settings.nodes_per_machine, 0);
  EXPECT_EQ(settings.transport, TransportChoice::Auto);
  EXPECT_EQ(settings.shm_chunk_bytes, 131072);
  EXPECT_EQ(settings.shm_slots, 16);
  EXPECT_EQ(settings.shm_copy, ShmCopy::Auto);
  EXPECT_EQ(settings.synchronisation, SynchronisationChoice::Auto);
  EXPECT_EQ(settings.mpi_chunk_bytes, 61440);
  EXPECT_EQ(settings.mpi_depth, 32);
  EXPECT_EQ(settings.poll_period, 1ms);
  EXPECT_EQ(settings.result_cache_bytes, 268435456);
  EXPECT_THAT(settings.notices, IsEmpty());
}

TEST(Settings, ReadsEveryVariable) {
  const Settings settings = read({{"BLUEFOG_TIMEOUT", "2.5"},
                                  {"BLUEFOG_STALL_WARNING", "0"},
                                  {"BLUEFOG_HEARTBEAT", "1.5"},
                                  {"BLUEFOG_LOG_LEVEL", "DEBUG"},
                                  {"BLUEFOG_LOG_HIDE_TIME", "1"},
                                  {"BLUEFOG_TIMELINE", "/data/trace_"},
                                  {"BLUEFOG_FUSION_THRESHOLD", "1048576"},
                                  {"BLUEFOG_HOST_ID", "left"},
                                  {"BLUEFOG_NODES_PER_MACHINE", "2"},
                                  {"BLUEFOG_TRANSPORT", "mpi"},
                                  {"BLUEFOG_SHM_CHUNK_BYTES", "65536"},
                                  {"BLUEFOG_SHM_SLOTS", "4"},
                                  {"BLUEFOG_SHM_COPY", "Stream"},
                                  {"BLUEFOG_SYNCHRONISATION", "Neighbours"},
                                  {"BLUEFOG_MPI_CHUNK_BYTES", "4096"},
                                  {"BLUEFOG_MPI_DEPTH", "2"},
                                  {"BLUEFOG_POLL_PERIOD", "0.5"},
                                  {"BLUEFOG_RESULT_CACHE", "4096"}});
  EXPECT_EQ(settings.timeout, 2500ms);
  EXPECT_EQ(settings.heartbeat, 1500ms);
  EXPECT_EQ(settings.stall_warning, 0s);
  EXPECT_EQ(settings.log_level, LogLevel::Debug);
  EXPECT_TRUE(settings.log_hide_time);
  EXPECT_EQ(settings.timeline, "/data/trace_");
  EXPECT_EQ(settings.fusion_threshold_bytes, 1048576);
  EXPECT_EQ(settings.host_id, "left");
  EXPECT_EQ(settings.nodes_per_machine, 2);
  EXPECT_EQ(settings.transport, TransportChoice::Mpi);
  EXPECT_EQ(settings.shm_chunk_bytes, 65536);
  EXPECT_EQ(settings.shm_slots, 4);
  EXPECT_EQ(settings.shm_copy, ShmCopy::Stream);
  EXPECT_EQ(settings.synchronisation, SynchronisationChoice::Neighbors);
  EXPECT_EQ(settings.mpi_chunk_bytes, 4096);
  EXPECT_EQ(settings.mpi_depth, 2);
  EXPECT_EQ(settings.poll_period, 500us);
  EXPECT_EQ(settings.result_cache_bytes, 4096);
  EXPECT_THAT(settings.notices, IsEmpty());
}

TEST(Settings, RefusesMalformedValuesByName) {
  const std::map<std::string, std::vector<std::string>> wrong{
      {"BLUEFOG_TIMEOUT", {"-1", "soon", "5s", "nan", "inf", " 5", "1e300"}},
      {"BLUEFOG_STALL_WARNING", {"-0.5", "x"}},
      {"BLUEFOG_HEARTBEAT", {"-1", "0.1", "2s", "nan"}},
      {"BLUEFOG_LOG_LEVEL", {"loud", "3"}},
      {"BLUEFOG_LOG_HIDE_TIME", {"2", "maybe"}},
      {"BLUEFOG_FUSION_THRESHOLD", {"-1", "8MiB", "1.5", "99999999999999999999"}},
      {"BLUEFOG_NODES_PER_MACHINE", {"-2", "two"}},
      {"BLUEFOG_TRANSPORT", {"shm", "tcp"}},
      {"BLUEFOG_SHM_CHUNK_BYTES", {"0", "100", "4097", "4294967296"}},
      {"BLUEFOG_SHM_SLOTS", {"1", "0"}},
      {"BLUEFOG_SHM_COPY", {"nt", "1"}},
      {"BLUEFOG_SYNCHRONISATION", {"neighbors", "all"}},
      {"BLUEFOG_MPI_CHUNK_BYTES", {"1", "-4096"}},
      {"BLUEFOG_MPI_DEPTH", {"0", "1025"}},
      {"BLUEFOG_POLL_PERIOD", {"0", "-1", "fast"}},
      {"BLUEFOG_RESULT_CACHE", {"-1", "1.5", "much"}}};
  for (const auto& [name, values] : wrong) {
    for (const std::string& value : values) {
      EXPECT_THAT(refusal(name, value), HasSubstr(name + "=" + value + ": expected "));
    }
  }
}

TEST(Settings, EmptyValueCountsAsUnset) {
  EXPECT_EQ(read({{"BLUEFOG_TIMEOUT", ""}}).timeout, 600s);
}

TEST(Settings, SaysWhatIsIgnored) {
  EXPECT_THAT(read({{"BLUEFOG_CYCLE_TIME", "0.5"}, {"HOME", "/root"}}).notices,
              ElementsAre("BLUEFOG_CYCLE_TIME has no meaning here and is ignored"));
}

TEST(Settings, NamesTheNearestKnownVariable) {
  EXPECT_THAT(read({{"BLUEFOG_TIMOUT", "5"}}).notices,
              ElementsAre("BLUEFOG_TIMOUT is not known; did you mean BLUEFOG_TIMEOUT?"));
  EXPECT_THAT(read({{"BLUEFOG_FOO", "5"}}).notices, ElementsAre("BLUEFOG_FOO is not known"));
}

TEST(Settings, VariablesOfSetUpAndLauncherAreNotMentioned) {
  EXPECT_THAT(read({{"BLUEFOG_VENV", "somewhere"}}).notices, ::testing::IsEmpty());
}

TEST(Settings, ReadsTheProcessEnvironment) {
  ASSERT_EQ(::setenv("BLUEFOG_MPI_DEPTH", "3", 1), 0);
  EXPECT_EQ(Settings::from_environment().mpi_depth, 3);
  ASSERT_EQ(::unsetenv("BLUEFOG_MPI_DEPTH"), 0);
  EXPECT_EQ(Settings::from_environment().mpi_depth, 32);
}

TEST(Settings, AStartHearsOfAllThatCannotBeRead) {
  ASSERT_EQ(::setenv("BLUEFOG_MPI_DEPTH", "three", 1), 0);
  ASSERT_EQ(::setenv("BLUEFOG_TCP_PORTS", "abc", 1), 0);
  ASSERT_EQ(::setenv("BLUEFOG_SHM_SLOTS", "4", 1), 0);
  const Settings settings = Settings::for_start();
  EXPECT_EQ(settings.mpi_depth, 32);
  EXPECT_EQ(settings.shm_slots, 4);
  EXPECT_THAT(settings.problem, ::testing::MatchesRegex("BLUEFOG_MPI_DEPTH=three: expected .*; "
                                                        "BLUEFOG_TCP_PORTS=abc: expected .*"));
  for (const char* name : {"BLUEFOG_MPI_DEPTH", "BLUEFOG_TCP_PORTS", "BLUEFOG_SHM_SLOTS"}) {
    ASSERT_EQ(::unsetenv(name), 0);
  }
  EXPECT_EQ(Settings::for_start().problem, "");
}

TEST(SettingTable, DefaultsReadAsTheDefaults) {
  std::map<std::string, std::string> variables;
  for (const SettingInfo& info : setting_table()) {
    variables.emplace(info.name, info.default_value);
  }
  const Settings defaults;
  const Settings settings = read(variables);
  EXPECT_EQ(settings.timeout, defaults.timeout);
  EXPECT_EQ(settings.stall_warning, defaults.stall_warning);
  EXPECT_EQ(settings.log_level, defaults.log_level);
  EXPECT_EQ(settings.log_hide_time, defaults.log_hide_time);
  EXPECT_EQ(settings.fusion_threshold_bytes, defaults.fusion_threshold_bytes);
  EXPECT_EQ(settings.nodes_per_machine, defaults.nodes_per_machine);
  EXPECT_EQ(settings.transport, defaults.transport);
  EXPECT_EQ(settings.shm_chunk_bytes, defaults.shm_chunk_bytes);
  EXPECT_EQ(settings.shm_slots, defaults.shm_slots);
  EXPECT_EQ(settings.mpi_chunk_bytes, defaults.mpi_chunk_bytes);
  EXPECT_EQ(settings.mpi_depth, defaults.mpi_depth);
  EXPECT_EQ(settings.poll_period, defaults.poll_period);
  EXPECT_EQ(settings.result_cache_bytes, defaults.result_cache_bytes);
}

TEST(SettingTable, NamesAreUniqueAndNotIgnoredToo) {
  std::set<std::string_view> names;
  for (const SettingInfo& info : setting_table()) {
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
  }
  for (const std::string_view name : ignored_variables()) {
    EXPECT_TRUE(names.insert(name).second) << name;
  }
}

TEST(SettingTable, DocumentIsUpToDate) {
  std::ifstream file(BLUEFOG_SOURCE_DIR "/docs/settings.md");
  ASSERT_TRUE(file) << "docs/settings.md is missing";
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  EXPECT_EQ(page, settings_markdown());
}

}  // namespace
}  // namespace bluefog
