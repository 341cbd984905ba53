#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cstdint>
#include <tuple>
#include <type_traits>

#include "bluefog_cpp/error.hpp"
#include "optimizers/buckets/device_values.hpp"

namespace bluefog::optimizers {

/// A tensor that `update_elements` leaves as it is.
struct ReadOnly {
  const at::Tensor& tensor;
};

namespace detail {

/// The type of the arithmetic: float for the 16-bit types.
template <typename Element>
using Wide = std::conditional_t<std::is_same_v<Element, double>, double, float>;

template <typename Values>
struct NumberIn {
  using Type = Values;
};
template <typename Number>
struct NumberIn<DeviceValues<Number>> {
  using Type = Number;
};

inline const at::Tensor& tensor_of(const at::Tensor& written) { return written; }
inline const at::Tensor& tensor_of(const ReadOnly& read) { return read.tensor; }

template <typename Element>
Element* elements(const at::Tensor& written) {
  return written.data_ptr<Element>();
}
template <typename Element>
const Element* elements(const ReadOnly& read) {
  return read.tensor.const_data_ptr<Element>();
}

template <typename Element>
void store(Element* place, Wide<Element> value) {
  *place = static_cast<Element>(value);
}
template <typename Element>
void store(const Element* /*only read*/, Wide<Element> /*value*/) {}

template <typename Element, typename Update, typename... Pointers>
void update_on_cpu(std::int64_t count, Update& update, Pointers... pointers) {
  for (std::int64_t i = 0; i < count; ++i) {
    std::tuple values{static_cast<Wide<Element>>(pointers[i])...};
    std::apply(update, values);
    std::apply([&](auto... value) { (store(pointers + i, value), ...); }, values);
  }
}

/// Gives `value` memory of its own if it is still some operand's, which may be written first.
template <typename Number>
void detach(const at::Tensor& own, DeviceValues<Number>& value, const auto&... operands) {
  const void* const memory = value.elements().const_data_ptr();
  if (memory != own.const_data_ptr() && ((memory == tensor_of(operands).const_data_ptr()) || ...)) {
    value = DeviceValues<Number>(value.elements().clone());
  }
}

template <typename Number>
void store(const at::Tensor& place, const DeviceValues<Number>& value) {
  const at::Tensor& elements = value.elements();
  if (elements.const_data_ptr() != place.const_data_ptr()) {
    place.narrow(0, 0, elements.numel()).copy_(elements);
  }
}
template <typename Number>
void store(const ReadOnly& /*only read*/, const DeviceValues<Number>& /*value*/) {}

template <typename Number, typename Update, typename... Operands>
void update_on_device(std::int64_t count, Update& update, const Operands&... operands) {
  constexpr at::ScalarType kNumber = c10::CppTypeToScalarType<Number>::value;
  std::tuple values{DeviceValues<Number>(tensor_of(operands).narrow(0, 0, count).to(kNumber))...};
  std::apply(update, values);
  std::apply(
      [&](auto&... value) {
        (detach(tensor_of(operands), value, operands...), ...);
        (store(operands, value), ...);
      },
      values);
}

}  // namespace detail

/// The type of a number to compute with `Values` by: constants are converted to it before they are
/// used, so that the CPU and a device round alike.
template <typename Values>
using NumberOf = typename detail::NumberIn<std::decay_t<Values>>::Type;

/// Calls `update(a_i, b_i, …)` for each element i of flat tensors, which lie apart, on one device,
/// and have one floating dtype and at least the first one's elements.
///
/// On the CPU this is one pass without allocating. On a device `update` is called once, with
/// `DeviceValues` in place of numbers: each of its operations is a pass of torch's with memory of
/// its own, on torch's current stream; results have the same bits.
/// @param operands tensors, or `ReadOnly` ones.
/// @param update takes its arguments by reference (`auto&`), in float or double; the values that it
///   leaves in those of tensors are written back.
template <typename Update, typename... Operands>
void update_elements(Update update, const Operands&... operands) {
  const at::Tensor& first = std::get<0>(std::forward_as_tuple(detail::tensor_of(operands)...));
  const std::int64_t count = first.numel();
  const auto run = [&]<typename Element>(Element /*selects the type*/) {
    if (first.is_cpu()) {
      detail::update_on_cpu<Element>(count, update, detail::elements<Element>(operands)...);
    } else {
      detail::update_on_device<detail::Wide<Element>>(count, update, operands...);
    }
  };
  switch (first.scalar_type()) {
    case at::kHalf:
      return run(c10::Half());
    case at::kBFloat16:
      return run(c10::BFloat16());
    case at::kFloat:
      return run(float());
    case at::kDouble:
      return run(double());
    default:
      throw InternalError("update_elements: parameters are of floating types");
  }
}

}  // namespace bluefog::optimizers
