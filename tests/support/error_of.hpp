#pragma once

#include <exception>
#include <string>

namespace bluefog::testing {

/// The text of the exception that `call` throws, which has to be an `Expected`.
template <typename Expected, typename Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const Expected& error) {
    return error.what();
  } catch (const std::exception& error) {
    return std::string("another exception: ") + error.what();
  }
  return "no exception";
}

}  // namespace bluefog::testing
