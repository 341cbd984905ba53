// The part that calls NCCL, compiled with a header that has neither ncclCommShrink nor
// ncclCommRevoke.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bluefog_cpp/device/nccl/nccl_api.hpp"
#include "bluefog_cpp/error.hpp"
#include "tests/support/error_of.hpp"

namespace bluefog::testing {
namespace {

using ::testing::HasSubstr;

TEST(OldNccl, SaysWhatItLacks) {
  std::shared_ptr<gpu::NcclApi> nccl;
  try {
    nccl = gpu::load_nccl();
  } catch (const UnsupportedError& error) {
    GTEST_SKIP() << error.what();
  }
  EXPECT_THAT(
      error_of<UnsupportedError>([&] { (void)nccl->shrink(nullptr, {}); }),
      HasSubstr("ncclCommShrink: expected NCCL 2.27 or newer, where this library was built"));
  EXPECT_THAT(
      error_of<UnsupportedError>([&] { nccl->revoke(nullptr); }),
      HasSubstr("ncclCommRevoke: expected NCCL 2.28 or newer, where this library was built"));
}

}  // namespace
}  // namespace bluefog::testing
