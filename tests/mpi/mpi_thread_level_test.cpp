// A program that initialised MPI for one thread only.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mpi.h>

#include "bluefog_cpp/bootstrap/mpi_bootstrap.hpp"
#include "bluefog_cpp/error.hpp"

namespace bluefog {
namespace {

TEST(MpiThreadLevel, OneThreadIsRefused) {
  int provided = MPI_THREAD_SINGLE;
  ASSERT_EQ(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), MPI_SUCCESS);
  if (provided >= MPI_THREAD_SERIALIZED) {
    MPI_Finalize();
    GTEST_SKIP() << "this MPI gives more than it is asked for";
  }
  try {
    (void)mpi::make_bootstrap({}, {}, Deadline::after(std::chrono::seconds(20)));
    ADD_FAILURE() << "expected UnsupportedError";
  } catch (const UnsupportedError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("MPI_THREAD_MULTIPLE"));
  }
  MPI_Finalize();
}

}  // namespace
}  // namespace bluefog
