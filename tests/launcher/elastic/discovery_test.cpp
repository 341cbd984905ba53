// The answers of a program of --host-discovery.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <string>

#include "tools/bfrun/elastic/host_discovery.hpp"
#include "tools/bfrun/options.hpp"

namespace bluefog::bfrun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

DiscoveryScript script() { return {"echo a:1", 1, "/bin:/usr/bin"}; }

std::string problem_of(const std::string& output, const ExitStatus& end = {}) {
  try {
    static_cast<void>(script().read(end, output));
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

TEST(DiscoveryScript, IsAProgramWithItsArguments) {
  EXPECT_THAT(DiscoveryScript("echo 'a b' c", 1, "/nowhere:/bin").words(),
              ElementsAre("/bin/echo", "a b", "c"));
  EXPECT_THROW(DiscoveryScript("/nowhere/script", 1, ""), CommandError);
  EXPECT_THROW(DiscoveryScript("/etc/passwd", 1, ""), CommandError);
  EXPECT_THROW(DiscoveryScript("''x' y", 1, ""), UsageError);
  EXPECT_THROW(DiscoveryScript(" ", 1, ""), UsageError);
}

TEST(DiscoveryScript, NamesHostsWithTheirSlots) {
  EXPECT_THAT(script().read({}, "b:2\n\n  c \n[fd00::1]:3\nd:0\n"),
              ElementsAre(HostSlots{"b", 2}, HostSlots{"c", 1}, HostSlots{"fd00::1", 3}));
  EXPECT_THAT(script().read({}, ""), IsEmpty());
  EXPECT_THAT(script().read({}, host_name() + ":4"), ElementsAre(HostSlots{"localhost", 4}));
}

TEST(DiscoveryScript, RefusesAnswersByTheirLine) {
  EXPECT_THAT(problem_of("b:2\nb:x"), HasSubstr("line 2 'b:x': expected a number of slots from 0"));
  EXPECT_THAT(problem_of("b:2 c:3"), HasSubstr("expected HOST:SLOTS, found 'c:3' behind it"));
  EXPECT_THAT(problem_of("<html>"), HasSubstr("line 1 '<html>': expected a host name"));
  EXPECT_THAT(problem_of("b:2\nB.:1"), HasSubstr("host 'B.' was given before"));
  EXPECT_THAT(problem_of("localhost:2\n127.0.0.1:1"),
              HasSubstr("'localhost' and '127.0.0.1' are both this machine"));
  EXPECT_THAT(problem_of(std::string(DiscoveryScript::kMostBytes, 'b')), HasSubstr("found more"));
}

TEST(DiscoveryScript, RefusesAnEndThatIsNone) {
  EXPECT_THAT(problem_of("b:2", {.code = 3}),
              HasSubstr("'echo a:1' ended with code 3, expected 0"));
  EXPECT_THAT(problem_of("b:2", {.killed_by = SIGSEGV}),
              HasSubstr("killed by signal 11 (SIGSEGV)"));
}

}  // namespace
}  // namespace bluefog::bfrun
