#include "optimizers/buckets/weighted_sums.hpp"

#include <torch/torch.h>

#include "optimizers/buckets/flat_arithmetic.hpp"

namespace bluefog::optimizers {

// On a device w stays there; on the CPU nothing is allocated.

void hold_sum(const at::Tensor& z, const at::Tensor& w, double taken, const at::Tensor& x) {
  if (!z.is_cpu()) {
    at::Tensor place = x.narrow(0, 0, z.numel());
    at::mul_out(place, z, w.to(at::kDouble).sub(taken).to(z.scalar_type()));
    return;
  }
  update_elements(
      [factor = w.item<double>() - taken](const auto& quotient, auto& sum) {
        sum = NumberOf<decltype(sum)>(factor) * quotient;
      },
      ReadOnly{z}, x);
}

void add_stepped(const at::Tensor& stepped, const at::Tensor& x) {
  update_elements([](const auto& value, auto& sum) { sum += value; }, ReadOnly{stepped}, x);
}

void show_quotient(const at::Tensor& x, const at::Tensor& w, const at::Tensor& z) {
  if (!z.is_cpu()) {
    at::Tensor place = z;
    at::div_out(place, x.narrow(0, 0, z.numel()), w.to(z.scalar_type()));
    return;
  }
  update_elements(
      [divisor = w.item<double>()](auto& quotient, const auto& sum) {
        quotient = sum / NumberOf<decltype(sum)>(divisor);
      },
      z, ReadOnly{x});
}

}  // namespace bluefog::optimizers
