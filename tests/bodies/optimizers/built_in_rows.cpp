// The rows of the library's algorithms, as the registry has them before any program adds its own.
#include "optimizers/algorithms/registry/built_in_rows.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "optimizers/algorithm_name.hpp"
#include "optimizers/algorithm_row.hpp"
#include "optimizers/algorithms/registry/row_check.hpp"

namespace bluefog::testing {
namespace {

using optimizers::AlgorithmName;
using optimizers::AlgorithmRow;

TEST(BuiltInRows, AreValid) {
  for (const auto make_row : optimizers::kBuiltInRows) {
    const AlgorithmRow row = make_row();
    EXPECT_EQ(optimizers::why_invalid(row), "") << row.name;
  }
}

/// Constants are written by hand; rows tell which there have to be.
TEST(BuiltInRows, HaveAConstantEach) {
  const std::vector<AlgorithmName> constants{AlgorithmName::GradientAllreduce,
                                             AlgorithmName::AdaptThenCombine,
                                             AlgorithmName::AdaptWithCombine,
                                             AlgorithmName::None,
                                             AlgorithmName::Extra,
                                             AlgorithmName::ExactDiffusion,
                                             AlgorithmName::D2,
                                             AlgorithmName::GradientTracking,
                                             AlgorithmName::PushSum,
                                             AlgorithmName::GossipPga,
                                             AlgorithmName::Ceca,
                                             AlgorithmName::Choco,
                                             AlgorithmName::PowerGossip,
                                             AlgorithmName::LocalSgd,
                                             AlgorithmName::SlowMo,
                                             AlgorithmName::DiLoCo,
                                             AlgorithmName::StreamingDiLoCo,
                                             AlgorithmName::GossipDiLoCo,
                                             AlgorithmName::SparseLoCo,
                                             AlgorithmName::NoLoCo,
                                             AlgorithmName::AcceleratedGossip,
                                             AlgorithmName::DmSgd,
                                             AlgorithmName::DecentLam,
                                             AlgorithmName::QuasiGlobalMomentum,
                                             AlgorithmName::WinPut,
                                             AlgorithmName::PullGet,
                                             AlgorithmName::AsyncPushSum};
  std::vector<std::string_view> texts;
  for (const AlgorithmName& name : constants) {
    texts.push_back(name.text());
    EXPECT_EQ(optimizers::row_of(name).name, name.text());
  }
  std::vector<std::string> names;
  for (const auto make_row : optimizers::kBuiltInRows) {
    names.push_back(make_row().name);
  }
  EXPECT_THAT(texts, ::testing::UnorderedElementsAreArray(names));
}

}  // namespace
}  // namespace bluefog::testing
