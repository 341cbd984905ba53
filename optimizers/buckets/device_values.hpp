#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/add.h>
#include <ATen/ops/div.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/neg.h>
#include <ATen/ops/sub.h>

#include <utility>

namespace bluefog::optimizers {

/// The elements of a tensor on a device, as one value. Arithmetic with it is done with each
/// element, by operations of torch on its current stream, each of which rounds by itself, as
/// `Number` does on the CPU. Copies share memory, and none is written: results lie in new memory.
/// @tparam Number float or double, the type of the elements.
template <typename Number>
class DeviceValues {
 public:
  explicit DeviceValues(at::Tensor elements) : elements_(std::move(elements)) {}

  [[nodiscard]] const at::Tensor& elements() const noexcept { return elements_; }

  friend DeviceValues operator+(const DeviceValues& a, const DeviceValues& b) {
    return DeviceValues(at::add(a.elements_, b.elements_));
  }
  friend DeviceValues operator-(const DeviceValues& a, const DeviceValues& b) {
    return DeviceValues(at::sub(a.elements_, b.elements_));
  }
  friend DeviceValues operator-(const DeviceValues& a) {
    return DeviceValues(at::neg(a.elements_));
  }
  friend DeviceValues operator*(Number a, const DeviceValues& b) {
    return DeviceValues(at::mul(b.elements_, a));
  }
  friend DeviceValues operator*(const DeviceValues& a, const DeviceValues& b) {
    return DeviceValues(at::mul(a.elements_, b.elements_));
  }
  /// Division is by a tensor: torch would multiply by the inverse of a number, which rounds twice.
  friend DeviceValues operator/(const DeviceValues& a, Number b) {
    return DeviceValues(at::div(a.elements_, at::full({1}, b, a.elements_.options())));
  }
  DeviceValues& operator+=(const DeviceValues& other) { return *this = *this + other; }
  DeviceValues& operator-=(const DeviceValues& other) { return *this = *this - other; }

 private:
  at::Tensor elements_;
};

}  // namespace bluefog::optimizers
