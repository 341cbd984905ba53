// MPI that the program itself initialises and finalises, around our contexts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mpi.h>

#include "bluefog_cpp/context.hpp"
#include "bluefog_cpp/error.hpp"

namespace bluefog {
namespace {

using ::testing::HasSubstr;

Settings over_mpi() {
  Settings settings;
  settings.timeout = std::chrono::seconds(20);
  settings.transport = TransportChoice::Mpi;
  return settings;
}

// MPI cannot be started twice in a process: one test walks through its whole life.
TEST(MpiOwnership, MpiOfTheProgramIsUsedAndLeftAlone) {
  int provided = MPI_THREAD_SINGLE;
  ASSERT_EQ(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), MPI_SUCCESS);
  Context::create(over_mpi());
  int finalized = 1;
  MPI_Finalized(&finalized);
  EXPECT_EQ(finalized, 0);

  auto context = Context::create(over_mpi());
  MPI_Finalize();
  context.reset();  // calls nothing of MPI any more

  try {
    (void)Context::create(over_mpi());
    FAIL() << "expected UnsupportedError";
  } catch (const UnsupportedError& error) {
    EXPECT_THAT(error.what(), HasSubstr("MPI was finalised"));
  }
}

}  // namespace
}  // namespace bluefog
