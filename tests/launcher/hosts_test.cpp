#include "tools/bfrun/start/hosts.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/error_of.hpp"
#include "tools/bfrun/options.hpp"

namespace bluefog::bfrun {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string list_error(const std::string& text) {
  return testing::error_of<UsageError>([&] { static_cast<void>(parse_host_list(text)); });
}

std::string file_error(const std::string& text) {
  return testing::error_of<UsageError>(
      [&] { static_cast<void>(parse_hostfile(text, "hosts.txt")); });
}

TEST(HostList, ReadsNamesAndSlots) {
  EXPECT_THAT(parse_host_list("a:2,b,c.example-1.org:16"),
              ElementsAre(HostSlots{"a", 2}, HostSlots{"b", 1}, HostSlots{"c.example-1.org", 16}));
  EXPECT_THAT(parse_host_list("[2001:db8::1]:4,[::1]"),
              ElementsAre(HostSlots{"2001:db8::1", 4}, HostSlots{"::1", 1}));
}

TEST(HostList, RefusesWhatNoHostIsCalled) {
  EXPECT_THAT(list_error(""), HasSubstr("entry 1"));
  EXPECT_THAT(list_error("a,,b"), HasSubstr("entry 2"));
  EXPECT_THAT(list_error("a:2,"), HasSubstr("entry 2"));
  EXPECT_THAT(list_error("-oProxy:1"), HasSubstr("'-oProxy'"));
  EXPECT_THAT(list_error("a b:1"), HasSubstr("'a b'"));
  EXPECT_THAT(list_error("$(x)"), HasSubstr("expected a host name"));
  EXPECT_THAT(list_error(std::string(254, 'a')), HasSubstr("expected a host name"));
  EXPECT_THAT(list_error("2001:db8::1"), HasSubstr("[address]:slots"));
  EXPECT_THAT(list_error("[2001:db8::1"), HasSubstr("missing ']'"));
}

TEST(HostList, RefusesSlotsOutOfRange) {
  for (const char* slots : {"0", "-1", "65537", "x", "", "2 "}) {
    EXPECT_THAT(list_error(std::string("a:") + slots),
                HasSubstr("expected a number of slots from 1 to 65536"))
        << slots;
  }
}

TEST(HostList, RefusesAHostTwice) {
  EXPECT_THAT(list_error("a:2,b:1,a:2"), AllOf(HasSubstr("entry 3"), HasSubstr("entry 1")));
}

TEST(Hostfile, ReadsBothFormsAndComments) {
  EXPECT_THAT(parse_hostfile("# all machines\n\n a slots=2 max_slots=4\r\nb:3 # slow\nc\n", "f"),
              ElementsAre(HostSlots{"a", 2}, HostSlots{"b", 3}, HostSlots{"c", 1}));
}

TEST(Hostfile, NamesLineAndContent) {
  EXPECT_THAT(file_error("a\nb slots=zero\n"),
              AllOf(HasSubstr("hosts.txt, line 2"), HasSubstr("b slots=zero")));
  EXPECT_THAT(file_error("a\n\nb gpus=2\n"), AllOf(HasSubstr("line 3"), HasSubstr("gpus=2")));
  EXPECT_THAT(file_error("a\nb\na\n"), AllOf(HasSubstr("line 3"), HasSubstr("line 1")));
  EXPECT_THAT(file_error("# nothing\n"), HasSubstr("no host in this file"));
  EXPECT_THAT(file_error(std::string((1 << 20) + 1, 'a')), HasSubstr("at most 1048576 bytes"));
}

// A terminal obeys control characters, and a file of another kind may be one line of a megabyte.
TEST(Hostfile, RefusesWhatContradictsItself) {
  const auto message = [](const std::string& text) {
    try {
      (void)parse_hostfile(text, "hosts");
      return std::string();
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
  };
  EXPECT_THAT(message("a slots=2 slots=3\n"), ::testing::HasSubstr("expected slots once"));
  EXPECT_THAT(message("a slots=2 max_slots=1\n"),
              ::testing::HasSubstr("expected at most max_slots=1 slots, found 2"));
  EXPECT_EQ(message("a slots=2 max_slots=2\nb max_slots=1\n"), "");
}

TEST(Hostfile, QuotesOnlyWhatATerminalCanShow) {
  EXPECT_EQ(file_error("\x1b[2J\x07\n"),
            "hosts.txt, line 1 '?[2J?': expected a host name of letters, digits, '.', '-' and '_', "
            "found '?[2J?'");
  EXPECT_THAT(file_error("a \xff\n"), HasSubstr("line 1 'a ?': expected slots=N, found '?'"));
  EXPECT_THAT(file_error("a slots=\x1b\n"), HasSubstr("65536, found '?'"));
  EXPECT_LT(file_error(std::string(1 << 20, 'a')).size(), 400U);
  EXPECT_LT(list_error(std::string(1 << 20, 'a')).size(), 400U);
}

TEST(Hostfile, ThatCannotBeReadIsAnError) {
  for (const char* path : {"/nonexistent/hosts", "/"}) {
    EXPECT_THAT(testing::error_of<UsageError>([&] { static_cast<void>(read_hostfile(path)); }),
                HasSubstr(path));
  }
}

TEST(AssignRanks, FillsHostsInOrder) {
  const std::vector<HostSlots> hosts{{"b", 2}, {"a", 4}, {"c", 2}};
  EXPECT_THAT(assign_ranks(hosts, 8), ElementsAre(hosts[0], hosts[1], hosts[2]));
  EXPECT_THAT(assign_ranks(hosts, 3), ElementsAre(HostSlots{"b", 2}, HostSlots{"a", 1}));
  EXPECT_THAT(testing::error_of<UsageError>([&] { static_cast<void>(assign_ranks(hosts, 9)); }),
              AllOf(HasSubstr("-np 9"), HasSubstr("8 slots")));
}

TEST(IsThisHost, KnowsOwnNames) {
  for (const char* name : {"localhost", "LOCALHOST", "localhost.localdomain", "ip6-localhost",
                           "ip6-loopback", "127.0.0.1", "::1", "node7.cluster", "node7", "NODE7",
                           "Node7.Cluster", "node7.", "node7.cluster.", "localhost."}) {
    EXPECT_TRUE(is_this_host(name, "node7.cluster")) << name;
  }
  for (const char* name : {"node8", "node", "node7.other", "node8.", "node7..", "."}) {
    EXPECT_FALSE(is_this_host(name, "node7.cluster")) << name;
  }
  EXPECT_TRUE(is_this_host("node7", "NODE7.cluster"));
}

TEST(ShareFirstLabel, KnowsMachinesThatMpirunWouldTakeForOne) {
  const auto share = [](const std::vector<std::string>& names, const char* own) {
    std::vector<HostSlots> hosts;
    for (const auto& name : names) {
      hosts.push_back({name, 1});
    }
    return share_first_label(hosts, own);
  };
  EXPECT_TRUE(share({"node1.a", "node1.b"}, "head"));
  EXPECT_TRUE(share({"node1.a"}, "node1"));
  EXPECT_TRUE(share({"node1.a", "NODE1.B"}, "head"));
  EXPECT_FALSE(share({"node1.a", "node2.a"}, "head"));
  EXPECT_FALSE(share({"node1.a", "NODE1.A", "node1.a."}, "node1.a"));
  EXPECT_FALSE(share({"10.0.0.1", "10.0.0.2", "fe80::1", "fe80::2"}, "head"));
}

TEST(HostList, CapitalsAndALastDotMakeNoOtherHost) {
  EXPECT_THAT(
      testing::error_of<UsageError>([] { static_cast<void>(parse_host_list("node1,NODE1")); }),
      HasSubstr("host 'NODE1' was given before"));
  EXPECT_THAT(
      testing::error_of<UsageError>([] { static_cast<void>(parse_host_list("node1,node1.")); }),
      HasSubstr("host 'node1.' was given before"));
}

}  // namespace
}  // namespace bluefog::bfrun
