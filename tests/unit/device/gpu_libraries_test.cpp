// The loaders of CUDA's driver and NCCL, as far as they can be tested without a GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bluefog_cpp/device/nccl/nccl_api.hpp"
#include "bluefog_cpp/error.hpp"

namespace bluefog::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

template <typename Load>
std::string refusal_of(Load&& load) {
  try {
    (void)load();
  } catch (const UnsupportedError& error) {
    return error.what();
  }
  return "no error";
}

TEST(GpuLibraries, NoSuchLibrary) {
  const auto is_named = AnyOf(HasSubstr("libno_such.so"), HasSubstr("this build has no"));
  EXPECT_THAT(refusal_of([] { return gpu::load_cuda("libno_such.so"); }), is_named);
  EXPECT_THAT(refusal_of([] { return gpu::load_nccl("libno_such.so"); }), is_named);
}

TEST(GpuLibraries, ALibraryWithoutTheFunctions) {
  EXPECT_THAT(refusal_of([] { return gpu::load_cuda("libm.so.6"); }),
              AnyOf(HasSubstr("libm.so.6 has no function cuInit"), HasSubstr("this build has no")));
  EXPECT_THAT(refusal_of([] { return gpu::load_nccl("libm.so.6"); }),
              AnyOf(HasSubstr("has no function ncclGetVersion"), HasSubstr("this build has no")));
}

/// The toolkit's stub has every function of the driver, and no device behind them.
TEST(GpuLibraries, EveryFunctionOfTheDriverIsFound) {
  if (std::string(BLUEFOG_CUDA_STUB).empty()) {
    GTEST_SKIP() << "this build has no CUDA, or its toolkit no stub of the driver";
  }
  try {
    (void)gpu::load_cuda(BLUEFOG_CUDA_STUB);
  } catch (const CudaError& error) {
    EXPECT_THAT(error.what(), HasSubstr("cuInit"));
  }
}

/// Needs no GPU.
TEST(GpuLibraries, NcclTellsItsVersionAndMakesIds) {
  std::shared_ptr<gpu::NcclApi> nccl;
  try {
    nccl = gpu::load_nccl();
  } catch (const UnsupportedError& error) {
    GTEST_SKIP() << error.what();
  }
  EXPECT_GE(nccl->version(), 21800);
  EXPECT_THROW((void)nccl->init(1, gpu::NcclId{}, 1), NcclError);
}

}  // namespace
}  // namespace bluefog::testing
