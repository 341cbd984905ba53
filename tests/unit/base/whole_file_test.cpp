#include "bluefog_cpp/base/files/whole_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>

#include "bluefog_cpp/error.hpp"

namespace bluefog {
namespace {

using ::testing::HasSubstr;

class WholeFile : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "whole_file_XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::ptrdiff_t file_count() const {
    return std::distance(std::filesystem::directory_iterator(folder_), {});
  }

  std::filesystem::path folder_;
};

std::string refusal(const std::function<void()>& call) {
  try {
    call();
    return "";
  } catch (const InvalidArgument& error) {
    return error.what();
  }
}

TEST_F(WholeFile, TakesThePlaceOfTheOneBefore) {
  const std::string path = folder_ / "file";
  check_writable(path);
  EXPECT_EQ(file_count(), 0);
  write_whole_file(path, "a longer text");
  write_whole_file(path, "text");
  check_writable(path);
  std::ifstream file(path);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "text");
  EXPECT_EQ(file_count(), 1);
}

TEST_F(WholeFile, WhatCannotBeWrittenIsNamedWithTheReason) {
  for (const auto& [path, reason] :
       {std::pair(folder_ / "none" / "file", ": No such file or directory"),
        std::pair(folder_, ": Is a directory")}) {
    const std::string name = path;
    EXPECT_EQ(refusal([&] { write_whole_file(name, "text"); }), "cannot write " + name + reason);
    EXPECT_EQ(refusal([&] { check_writable(name); }), "cannot write " + name + reason);
  }
}

TEST_F(WholeFile, DevicesAreWrittenAsTheyAre) {
  check_writable("/dev/null");
  write_whole_file("/dev/null", "text");
  EXPECT_FALSE(std::filesystem::exists("/dev/null.part"));
  EXPECT_THAT(refusal([] { write_whole_file("/dev/full", "text"); }),
              HasSubstr("cannot write /dev/full: No space left on device"));
}

}  // namespace
}  // namespace bluefog
