// The start of a rank on another host: its description, and the words that start it there.
#include "tools/bfrun/elastic/far_start.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "bluefog_cpp/error.hpp"
#include "tools/bfrun/job/pipe.hpp"

namespace bluefog::bfrun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Reads `bytes` back, and what is left behind them.
FarStart read_back(const std::string& bytes, std::string* rest = nullptr) {
  Pipe pipe = make_pipe();
  EXPECT_EQ(write(pipe.write_end.get(), bytes.data(), bytes.size()), std::ssize(bytes));
  pipe.write_end.reset();
  FarStart start = read_far_start(pipe.read_end.get());
  if (rest != nullptr) {
    read_available(pipe.read_end.get(), [&](std::string_view piece) { rest->append(piece); });
  }
  return start;
}

std::string refusal_of(const std::string& bytes) {
  try {
    static_cast<void>(read_back(bytes));
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "no error";
}

const FarStart kStart{.folder = "/a b",
                      .environment = {{"EMPTY", ""}, {"LINES", "one\ntwo"}, {"RANK", "3"}},
                      .command = {"python", "x y.py", ""}};

TEST(FarStart, ComesAsItWasSentAndLeavesWhatFollows) {
  std::string rest;
  EXPECT_EQ(read_back(encode(kStart) + "\x0f", &rest), kStart);
  EXPECT_EQ(rest, "\x0f");
}

TEST(FarStart, RefusesOtherBytes) {
  const std::string bytes = encode(kStart);
  EXPECT_THAT(refusal_of(""), HasSubstr("found its end"));
  EXPECT_THAT(refusal_of("something that a user has typed, say"), HasSubstr("another version"));
  EXPECT_THAT(refusal_of(bytes.substr(0, bytes.size() - 1)), HasSubstr("cut off"));
  std::string longer = bytes;
  longer.replace(longer.find(' ') + 1, 8, "7fffffff");
  EXPECT_THAT(refusal_of(longer), HasSubstr("another version"));
  std::string shorter = bytes;
  shorter.replace(shorter.find(' ') + 1, 8, "00000003");
  EXPECT_THAT(refusal_of(shorter), HasSubstr("cut off"));
}

TEST(FarHosts, AreReachedBySshThatAsksNothingAndNoticesALoss) {
  const FarHosts far{.shell = {"/usr/bin/ssh", "-q"},
                     .port = 2222,
                     .silence = std::chrono::seconds(10),
                     .bfrun = "/a b/bfrun",
                     .exported = {}};
  EXPECT_THAT(words_for(far, "host"),
              ElementsAre("/usr/bin/ssh", "-q", "-x", "-T", "-o", "BatchMode=yes", "-o",
                          "ServerAliveInterval=4", "-o", "ServerAliveCountMax=3", "-p", "2222",
                          "host", "exec '/a b/bfrun' --exec-far-rank"));
  const FarHosts patient{
      .shell = {"rsh"}, .silence = std::chrono::seconds(0), .bfrun = "bfrun", .exported = {}};
  EXPECT_THAT(words_for(patient, "host"), ElementsAre("rsh", "-x", "-T", "-o", "BatchMode=yes",
                                                      "host", "exec bfrun --exec-far-rank"));
}

}  // namespace
}  // namespace bluefog::bfrun
