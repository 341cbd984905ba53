#include "tools/bfrun/start/mpirun.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tools/bfrun/start/mpirun_command.hpp"

namespace bluefog::bfrun {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;

std::function<bool(const std::string&)> only(const std::set<std::string>& programs) {
  return [programs](const std::string& path) { return programs.contains(path); };
}

MpirunPlaces all_places() { return {"", "", "/own", "/venv", "/built/mpirun", "/p1::/p2"}; }

TEST(FindMpirun, LooksInOrder) {
  const auto places = all_places();
  const std::vector<std::string> order{"/own/mpirun", "/venv/bin/mpirun", "/built/mpirun",
                                       "/p1/mpirun",  "./mpirun",         "/p2/mpirun"};
  std::set<std::string> present(order.begin(), order.end());
  for (const auto& expected : order) {
    EXPECT_EQ(find_mpirun(places, only(present)), expected);
    present.erase(expected);
  }
  EXPECT_THROW(static_cast<void>(find_mpirun(places, only({}))), UsageError);
}

TEST(FindMpirun, DoesNotReplaceTheOneThatWasNamed) {
  auto places = all_places();
  places.variable = "/named";
  EXPECT_EQ(find_mpirun(places, only({"/named", "/own/mpirun"})), "/named");
  EXPECT_THROW(static_cast<void>(find_mpirun(places, only({"/own/mpirun"}))), UsageError);
  places.option = "/option";
  EXPECT_EQ(find_mpirun(places, only({"/named", "/option"})), "/option");
}

TEST(MpirunVersion, IsReadFromOpenMpiAlone) {
  EXPECT_EQ(parse_mpirun_version("mpirun (Open MPI) 5.0.11\n\nReport"), (OpenMpiVersion{5, 0, 11}));
  EXPECT_EQ(parse_mpirun_version("mpirun (Open MPI) 4.1.4rc1"), (OpenMpiVersion{4, 1, 4}));
  EXPECT_EQ(parse_mpirun_version("HYDRA build details:\n Version: 4.1"), std::nullopt);
  EXPECT_EQ(parse_mpirun_version(""), std::nullopt);
  EXPECT_THROW(static_cast<void>(query_mpirun_version("/nonexistent/mpirun")), UsageError);
  EXPECT_THROW(static_cast<void>(query_mpirun_version("/bin/echo")), UsageError);
}

Options sample_options() {
  Options options;
  options.num_proc = 4;
  options.command = {"program", "-np", "x y"};
  return options;
}

MpirunCall sample_call() {
  MpirunCall call;
  call.mpirun = "/m/mpirun";
  call.version = {5, 0, 11};
  call.bfrun = "/b/bfrun";
  call.hosts = {{"localhost", 4}};
  call.exported = {"A", "B"};
  return call;
}

TEST(MpirunCommand, OnThisHost) {
  EXPECT_THAT(build_mpirun_command(sample_options(), sample_call()),
              ElementsAre("/m/mpirun", "-np", "4", "--host", "localhost:4", "--map-by",
                          "slot:OVERSUBSCRIBE", "--bind-to", "none", "/b/bfrun", "--exec-rank",
                          "--", "program", "-np", "x y"));
}

TEST(MpirunCommand, OnOtherHostsExportsAndFallsBack) {
  auto options = sample_options();
  options.ssh_port = 2222;
  options.network_interface = "eth0";
  options.prefix = "/opt/mpi";
  options.fault_tolerant = true;
  auto call = sample_call();
  call.as_root = true;
  call.other_hosts = true;
  call.hosts = {{"a", 2}, {"2001:db8::1", 2}};
  call.extra_flags = {"--prtemca", "plm_ssh_agent", "my agent"};
  const auto words = build_mpirun_command(options, call);
  const std::vector<std::string> head(words.begin(), words.begin() + 29);
  EXPECT_THAT(head, ElementsAre("/m/mpirun", "--allow-run-as-root", "--with-ft", "ulfm", "--prefix",
                                "/opt/mpi", "-np", "4", "--host", "a:2,[2001:db8::1]:2", "--map-by",
                                "slot:OVERSUBSCRIBE", "--bind-to", "none", "--prtemca",
                                "plm_ssh_args", "-p 2222", "--mca", "btl_tcp_if_include", "eth0",
                                "--prtemca", "prte_if_include", "eth0", "-x", "A", "-x", "B",
                                "--prtemca", "plm_ssh_agent"));
  EXPECT_EQ(words[29], "my agent");
  EXPECT_EQ(words[30], "/bin/sh");
  EXPECT_THAT(words[32], HasSubstr("exec \"$0\" --exec-rank -- \"$@\""));
  EXPECT_EQ(words[33], "/b/bfrun");
  EXPECT_EQ(words[34], "program");
}

TEST(MpirunCommand, OpenMpi4HasOtherNames) {
  auto options = sample_options();
  options.ssh_port = 2222;
  auto call = sample_call();
  call.version = {4, 1, 4};
  EXPECT_THAT(build_mpirun_command(options, call),
              IsSupersetOf({"--mca", "plm_rsh_args", "-p 2222"}));
  options.fault_tolerant = true;
  EXPECT_THROW(static_cast<void>(build_mpirun_command(options, call)), UsageError);
}

TEST(MpirunCommand, TheUsersFlagsWin) {
  auto call = sample_call();
  call.no_input = true;
  EXPECT_THAT(build_mpirun_command(sample_options(), call), IsSupersetOf({"--stdin", "none"}));
  call.extra_flags = {"--bind-to", "socket", "-map-by", "node", "--stdin=all"};
  const auto words = build_mpirun_command(sample_options(), call);
  EXPECT_THAT(words, Not(Contains("none")));
  EXPECT_THAT(words, Not(Contains("--map-by")));
}

TEST(MpirunCommand, FlagsAreRecognisedInEverySpelling) {
  EXPECT_TRUE(has_flag({"--bind-to", "core"}, "bind-to"));
  EXPECT_TRUE(has_flag({"-bind-to", "core"}, "bind-to"));
  EXPECT_TRUE(has_flag({"--bind-to=core"}, "bind-to"));
  EXPECT_FALSE(has_flag({"bind-to", "--bind-tool", "---bind-to", "--"}, "bind-to"));
}

}  // namespace
}  // namespace bluefog::bfrun
