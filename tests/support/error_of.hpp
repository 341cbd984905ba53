#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <string>

namespace bluefog::testing {

/// The text of the exception that `call` throws. Another one than an `Expected`, or none, is a
/// failure of the test.
template <typename Expected, typename Call>
std::string error_of(Call&& call) {
  try {
    call();
    ADD_FAILURE() << "expected an exception";
  } catch (const Expected& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another exception than expected: " << error.what();
  }
  return {};
}

}  // namespace bluefog::testing
