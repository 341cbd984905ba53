// A rank that cannot go on says why, whatever becomes of the others meanwhile.
#include "bluefog_cpp/bootstrap/own_problem.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bluefog_cpp/error.hpp"

namespace bluefog {
namespace {

using ::testing::SizeIs;

/// Two ranks, of which the other one may have gone.
class Pair final : public Bootstrap {
 public:
  explicit Pair(bool is_other_gone) : is_other_gone_(is_other_gone) {}
  [[nodiscard]] int rank() const noexcept override { return 0; }
  [[nodiscard]] int size() const noexcept override { return 2; }
  [[nodiscard]] std::string_view name() const noexcept override { return "pair"; }
  [[nodiscard]] bool in_process() const noexcept override { return false; }
  std::vector<Blob> allgather(std::span<const std::byte> blob, Deadline /*deadline*/) override {
    ++calls;
    if (is_other_gone_) {
      throw TransportError("the store is gone");
    }
    return {Blob(blob.begin(), blob.end()), Blob()};
  }
  void barrier(Deadline /*deadline*/) override {}
  std::shared_ptr<Bootstrap> duplicate(Deadline /*deadline*/) override { return nullptr; }

  int calls = 0;

 private:
  bool is_other_gone_;
};

std::string thrown_by(Pair& pair, const std::exception_ptr& own) {
  try {
    EXPECT_THAT(allgather_unless(own, pair, {}, Deadline()), SizeIs(2));
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(OwnProblem, WinsOverTheStoreThatGoesWithTheOthers) {
  const auto own = std::make_exception_ptr(InvalidArgument("no such interface"));
  Pair gone(true);
  EXPECT_EQ(thrown_by(gone, own), "no such interface");
  EXPECT_EQ(gone.calls, 1) << "the others hear of it first";
  EXPECT_EQ(thrown_by(gone, nullptr), "the store is gone");
}

TEST(OwnProblem, IsThrownWhenTheOthersHaveHeard) {
  const auto own = std::make_exception_ptr(InvalidArgument("no such interface"));
  Pair here(false);
  EXPECT_EQ(thrown_by(here, own), "no such interface");
  EXPECT_EQ(here.calls, 1);
  EXPECT_EQ(thrown_by(here, nullptr), "");
}

TEST(OwnProblem, OfSettingsIsSaidWhereTheOthersHaveNotCome) {
  Settings settings;
  const auto fails = []() -> int { throw TimeoutError("rank 1 has not come"); };
  EXPECT_EQ(start_with(settings, [] { return 7; }), 7);
  EXPECT_THROW((void)start_with(settings, fails), TimeoutError);
  settings.problem = "BLUEFOG_MPI_DEPTH=three: expected an integer";
  EXPECT_EQ(start_with(settings, [] { return 7; }), 7);
  try {
    (void)start_with(settings, fails);
    ADD_FAILURE() << "no error";
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(error.what(), settings.problem);
  }
}

}  // namespace
}  // namespace bluefog
