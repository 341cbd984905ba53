#include "bluefog_cpp/dtype.hpp"

#include <array>

namespace bluefog {
namespace {

constexpr std::array<std::string_view, 10> kNames{"float16", "bfloat16", "float32", "float64",
                                                  "uint8",   "int8",     "int16",   "int32",
                                                  "int64",   "bool"};

}  // namespace

std::string_view name_of(Dtype dtype) noexcept {
  const auto index = static_cast<std::size_t>(dtype);
  return index < kNames.size() ? kNames[index] : "unknown dtype";
}

}  // namespace bluefog
