#include "tools/bfrun/shell_words.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/bfrun/options.hpp"

namespace bluefog::bfrun {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> split(const std::string& text) { return split_shell_words(text, "flag"); }

TEST(ShellWords, SplitsAtBlanks) {
  EXPECT_THAT(split("  --mca  a 1\t-x\nB "), ElementsAre("--mca", "a", "1", "-x", "B"));
  EXPECT_THAT(split("   "), IsEmpty());
}

TEST(ShellWords, QuotesKeepBlanks) {
  EXPECT_THAT(split("--prtemca plm_ssh_args \"-p 22 -o 'A B'\""),
              ElementsAre("--prtemca", "plm_ssh_args", "-p 22 -o 'A B'"));
  EXPECT_THAT(split("'a b'c\"d e\" ''"), ElementsAre("a bcd e", ""));
}

TEST(ShellWords, BackslashesAreTheShells) {
  EXPECT_THAT(split(R"(a\ b \"c "x\"y\n" 'p\q')"), ElementsAre("a b", "\"c", R"(x"y\n)", R"(p\q)"));
}

TEST(ShellWords, RefusesWhatDoesNotEnd) {
  for (const char* bad : {"'a", "\"a b", "a\\", "\"a\\"}) {
    EXPECT_THROW(static_cast<void>(split(bad)), UsageError) << bad;
  }
}

TEST(ShellWords, JoinedWordsSplitAgain) {
  const std::vector<std::string> words{"mpirun", "", "a b", "it's", "\"$x\"", "-x", "A=1", "\\"};
  EXPECT_EQ(split(join_shell_words(words)), words);
  EXPECT_EQ(join_shell_words({"a", "--b=c"}), "a --b=c");
}

}  // namespace
}  // namespace bluefog::bfrun
