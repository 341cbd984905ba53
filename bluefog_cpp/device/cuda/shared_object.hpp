#pragma once

#include <dlfcn.h>
#include <fmt/format.h>

#include <string>
#include <utility>

#include "bluefog_cpp/error.hpp"

namespace bluefog::gpu {

/// A library that the running program has loaded. It stays loaded: what it started may outlive us.
class SharedObject {
 public:
  /// @throws UnsupportedError with the loader's reason.
  explicit SharedObject(std::string name)
      : name_(std::move(name)), handle_(::dlopen(name_.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) {
      throw UnsupportedError(fmt::format("cannot load {}: {}", name_, last_error()));
    }
  }

  /// @throws UnsupportedError where the library has no such function.
  template <typename Pointer>
  void bind(Pointer& pointer, const char* symbol) const {
    pointer = reinterpret_cast<Pointer>(::dlsym(handle_, symbol));
    if (pointer == nullptr) {
      throw UnsupportedError(fmt::format("{} has no function {}", name_, symbol));
    }
  }

  /// Null where the library has no such function.
  template <typename Pointer>
  void bind_if_there(Pointer& pointer, const char* symbol) const {
    pointer = reinterpret_cast<Pointer>(::dlsym(handle_, symbol));
  }

 private:
  static std::string last_error() {
    const char* const text = ::dlerror();
    return text == nullptr ? "unknown reason" : text;
  }

  std::string name_;
  void* handle_;
};

}  // namespace bluefog::gpu
