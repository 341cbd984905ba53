#include "bluefog_cpp/base/dtype.hpp"

#include <array>

namespace bluefog {
namespace {

struct DtypeTraits {
  std::size_t bytes;
  std::string_view name;
};

constexpr std::array<DtypeTraits, 10> kTraits{{
    {2, "float16"},
    {2, "bfloat16"},
    {4, "float32"},
    {8, "float64"},
    {1, "uint8"},
    {1, "int8"},
    {2, "int16"},
    {4, "int32"},
    {8, "int64"},
    {1, "bool"},
}};

// Dtypes also arrive in messages, so an out-of-range value must not index the table.
constexpr DtypeTraits kUnknown{1, "unknown dtype"};

const DtypeTraits& traits(Dtype dtype) noexcept {
  const auto index = static_cast<std::size_t>(dtype);
  return index < kTraits.size() ? kTraits[index] : kUnknown;
}

}  // namespace

std::size_t size_of(Dtype dtype) noexcept { return traits(dtype).bytes; }

std::string_view name_of(Dtype dtype) noexcept { return traits(dtype).name; }

bool is_floating(Dtype dtype) noexcept { return dtype <= Dtype::Float64; }

}  // namespace bluefog
