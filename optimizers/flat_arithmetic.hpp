#pragma once

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cstdint>
#include <tuple>
#include <type_traits>

#include "bluefog_cpp/base/buffer_view.hpp"
#include "bluefog_cpp/base/error.hpp"

namespace bluefog::optimizers {
namespace detail {

/// What is computed in: float for the 16-bit types.
template <typename Element>
using Wide = std::conditional_t<std::is_same_v<Element, double>, double, float>;

template <typename Element>
Element* elements(const BufferView& view) {
  return static_cast<Element*>(view.data);
}
template <typename Element>
const Element* elements(const ConstBufferView& view) {
  return static_cast<const Element*>(view.data);
}

template <typename Element>
void store(Element* place, Wide<Element> value) {
  *place = static_cast<Element>(value);
}
template <typename Element>
void store(const Element* /*only read*/, Wide<Element> /*value*/) {}

template <typename Element, typename Update, typename... Pointers>
void update_as(std::int64_t count, Update& update, Pointers... pointers) {
  for (std::int64_t i = 0; i < count; ++i) {
    std::tuple values{static_cast<Wide<Element>>(pointers[i])...};
    std::apply(update, values);
    std::apply([&](auto... value) { (store(pointers + i, value), ...); }, values);
  }
}

}  // namespace detail

/// Calls `update(a_i, b_i, …)` for each element i of the views, which lie apart and have one
/// floating dtype and the first one's count, in one pass without allocating.
/// @param update takes its arguments by reference (`auto&`), in float or double; what it leaves in
///   those of `BufferView`s is written back.
template <typename Update, typename First, typename... Others>
void update_elements(Update update, const First& first, const Others&... others) {
  const auto run = [&]<typename Element>(Element /*selects the type*/) {
    detail::update_as<Element>(first.count, update, detail::elements<Element>(first),
                               detail::elements<Element>(others)...);
  };
  switch (first.dtype) {
    case Dtype::Float16:
      return run(c10::Half());
    case Dtype::BFloat16:
      return run(c10::BFloat16());
    case Dtype::Float32:
      return run(float());
    case Dtype::Float64:
      return run(double());
    default:
      throw InternalError("update_elements: parameters are of floating types");
  }
}

}  // namespace bluefog::optimizers
