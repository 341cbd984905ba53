#pragma once

#include <exception>
#include <string>

namespace bluefog {

/// The text of an exception.
inline std::string message_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "unknown exception";
  }
}

}  // namespace bluefog
