#include "bluefog_cpp/bootstrap/mpi/mpi_part.hpp"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "bluefog_cpp/error.hpp"

namespace bluefog::mpi {
namespace {

using testing::HasSubstr;

std::string refusal_of(const MpiPlaces& places) {
  try {
    (void)load_mpi_part(places);
  } catch (const UnsupportedError& error) {
    return error.what();
  }
  return "nothing was refused";
}

#ifdef BLUEFOG_WHOLE_PART
TEST(MpiPart, OfThisBuildLacksNothing) {
  void* const part = ::dlopen(BLUEFOG_WHOLE_PART, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(part, nullptr) << ::dlerror();
  EXPECT_NE(::dlsym(part, "bluefog_mpi_functions"), nullptr);
  ::dlclose(part);
}
#endif

// One after the other: a part that is loaded stays.
TEST(MpiPart, IsLoadedOnceFromWhereItIsFirstFound) {
  EXPECT_FALSE(has_loaded_mpi());
  EXPECT_EQ(loaded_mpi_part(), nullptr);

  const std::string missing =
      refusal_of({.libraries = {"/no/such/libmpi.so.40"}, .parts = {"/no/such/libbluefog_mpi.so"}});
  EXPECT_THAT(missing, HasSubstr("expected Open MPI's library libmpi.so.40"));
  EXPECT_THAT(missing, HasSubstr("/no/such/libmpi.so.40: cannot open shared object file"));
  EXPECT_THAT(missing, HasSubstr("/no/such/libbluefog_mpi.so: cannot open shared object file"));
  EXPECT_THAT(missing, HasSubstr("pip install 'bluefog_cpp[mpi]'"));
  EXPECT_THAT(missing, HasSubstr("by bfrun on one host, or by torchrun"));

  const std::string other = refusal_of({.libraries = {}, .parts = {BLUEFOG_OTHER_PART}});
  EXPECT_THAT(other, HasSubstr("found version 0.0.1"));
  EXPECT_EQ(loaded_mpi_part(), nullptr);

  const MpiPlaces second{.libraries = {},
                         .parts = {"/no/such/libbluefog_mpi.so", BLUEFOG_OWN_PART}};
  const MpiFunctions& functions = load_mpi_part(second);
  EXPECT_EQ(functions.size_of_running_world(), 7);
  EXPECT_EQ(loaded_mpi_part(), &functions);
  EXPECT_EQ(&load_mpi_part({.libraries = {}, .parts = {"/no/such/libbluefog_mpi.so"}}), &functions);
}

TEST(MpiPart, IsLookedForBesideThisProgram) {
  const MpiPlaces places = MpiPlaces::beside_this_code();
  EXPECT_THAT(places.parts, testing::ElementsAre("libbluefog_mpi.so"));
  EXPECT_THAT(places.libraries, testing::IsEmpty());
}

}  // namespace
}  // namespace bluefog::mpi
