// The parts of train_language that know no ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "bluefog_cpp/error.hpp"
#include "examples/data/text_files.hpp"
#include "examples/train_language/byte_text.hpp"
#include "examples/train_language/half_products.hpp"
#include "examples/train_language/language_model.hpp"
#include "examples/train_language/language_options.hpp"
#include "examples/train_language/link_traffic.hpp"
#include "tests/support/error_of.hpp"
#include "tests/unit/examples/temporary_folder.hpp"

namespace bluefog::examples {
namespace {

using bluefog::testing::error_of;
using ::testing::HasSubstr;

std::string all_bytes(std::size_t count) {
  std::string text(count, '\0');
  for (std::size_t i = 0; i < count; ++i) {
    text[i] = static_cast<char>(i % 256);
  }
  return text;
}

TEST(ByteText, WindowsAreOfTheRanksShareWithTheBytesThatFollow) {
  const std::string text = all_bytes(250);
  for (int rank = 0; rank < 3; ++rank) {
    const ByteText own(text, 10, rank, 3);
    const Windows windows = own.batch(40, 7);
    EXPECT_TRUE(windows.following.equal(windows.bytes + 1));
    EXPECT_GE(windows.bytes.min().item<int>(), 75 * rank);
    EXPECT_LT(windows.following.max().item<int>(), 75 * (rank + 1));
    EXPECT_TRUE(own.batch(40, 7).bytes.equal(windows.bytes));
    EXPECT_FALSE(own.batch(40, 8).bytes.equal(windows.bytes));
    const std::vector<Windows> held_back = own.test_batches(1);
    ASSERT_EQ(held_back.size(), 2);
    EXPECT_EQ(held_back[0].bytes[0][0].item<int>(), 225);
    EXPECT_EQ(held_back[1].following[0][9].item<int>(), 245);
  }
}

TEST(ByteText, FoldersAreReadByNameWithoutLinks) {
  const TemporaryFolder folder;
  const std::filesystem::path& path = folder.path();
  std::ofstream(path / "b") << "second";
  std::ofstream(path / "a") << "first ";
  std::filesystem::create_symlink(path / "a", path / "c");
  EXPECT_EQ(read_texts({path}), "first second");
  EXPECT_EQ(read_texts({path / "b", path / "a"}), "secondfirst ");
  EXPECT_THAT(error_of<InvalidArgument>([&] { (void)read_texts({path / "none"}); }),
              HasSubstr("--data: expected files that can be read, found " +
                        (path / "none").string() + ": No such file"));
  EXPECT_THAT(error_of<InvalidArgument>([] { ByteText(all_bytes(100), 10, 0, 9); }),
              HasSubstr("expected more than 10 bytes for each of 9 ranks, and in the last tenth, "
                        "found 100 bytes in all"));
}

/// Of float32, whose products another length orders otherwise.
constexpr double kRounding = 1e-4;

TEST(LanguageModel, PlacesAreScoredByWhatCameBefore) {
  torch::manual_seed(1);
  LanguageModel model({.width = 8, .layers = 2, .heads = 2, .length = 12});
  const torch::NoGradGuard no_grad;
  at::Tensor windows = at::arange(24, at::kLong).view({2, 12});
  const at::Tensor before = model.forward(windows).clone();
  EXPECT_EQ(before.sizes(), (std::vector<std::int64_t>{2, 12, kBytes}));
  windows.slice(1, 7).fill_(255);
  const at::Tensor after = model.forward(windows);
  EXPECT_TRUE(after.slice(1, 0, 7).allclose(before.slice(1, 0, 7), kRounding, kRounding));
  EXPECT_FALSE(after.slice(1, 7).allclose(before.slice(1, 7), kRounding, kRounding));
  // Shorter windows, and the vectors of bytes counted once.
  EXPECT_TRUE(
      model.forward(windows.slice(1, 0, 7)).allclose(before.slice(1, 0, 7), kRounding, kRounding));
  std::int64_t count = 0;
  for (const at::Tensor& parameter : model.parameters()) {
    count += parameter.numel();
  }
  const std::int64_t block = 8 * 24 + 24 + 8 * 8 + 8 + 8 * 32 + 32 + 32 * 8 + 8 + 4 * 8;
  EXPECT_EQ(count, kBytes * 8 + 12 * 8 + 2 * block + 2 * 8);
}

TEST(HalfProducts, AreHalfWhileTheObjectLives) {
  const at::Tensor a = at::ones({2, 2});
  {
    const HalfProducts wanted(HalfProducts::Wanted::Yes);
    EXPECT_EQ(at::mm(a, a).scalar_type(), at::kBFloat16);
  }
  EXPECT_EQ(at::mm(a, a).scalar_type(), at::kFloat);
  const HalfProducts unwanted(HalfProducts::Wanted::No);
  EXPECT_EQ(at::mm(a, a).scalar_type(), at::kFloat);
}

TEST(LinkTraffic, LoopbackDoesNotCount) {
  std::istringstream counters(
      "Inter-|   Receive  |  Transmit\n face |bytes packets\n"
      "    lo:  1 2 3 4 5 6 7 8  1000 9 9\n  eth0: 1 2 3 4 5 6 7 8 30 9 9\n"
      "eth1:1 2 3 4 5 6 7 8 4 9\n");
  EXPECT_EQ(bytes_sent_in(counters), 34);
}

TEST(LanguageOptions, TheRateRisesAndFalls) {
  LanguageOptions options;
  options.learning_rate = 2.0;
  options.steps = 110;
  options.warmup_steps = 10;
  EXPECT_DOUBLE_EQ(learning_rate_at(options, 0), 0.2);
  EXPECT_DOUBLE_EQ(learning_rate_at(options, 9), 2.0);
  EXPECT_DOUBLE_EQ(learning_rate_at(options, 10), 2.0);
  EXPECT_DOUBLE_EQ(learning_rate_at(options, 60), 1.1);
  EXPECT_NEAR(learning_rate_at(options, 110), 0.2, 1e-12);
  options.warmup_steps = 0;
  EXPECT_DOUBLE_EQ(learning_rate_at(options, 0), 2.0);
}

TEST(LanguageOptions, ACodeIsAnOptionOfTheAlgorithms) {
  const std::vector<const char*> words{"train_language",
                                       "--algorithm",
                                       "choco",
                                       "--compression",
                                       "int8",
                                       "--option",
                                       "x=1",
                                       "--local-steps",
                                       "3"};
  std::vector<std::string> seen;
  const ParsedLanguageOptions parsed = parse_language_options(
      static_cast<int>(words.size()), words.data(),
      {{"choco"}, {"ring"}, [&](const auto& given, const std::string& algorithm) {
         seen = given;
         EXPECT_EQ(algorithm, "choco");
         return std::string();
       }});
  EXPECT_FALSE(parsed.exit_code) << parsed.text;
  EXPECT_EQ(parsed.options.algorithm_options,
            (std::vector<std::string>{"x=1", "compression=int8"}));
  EXPECT_EQ(seen, parsed.options.algorithm_options);
  EXPECT_EQ(parsed.options.local_steps, 3);
}

}  // namespace
}  // namespace bluefog::examples
