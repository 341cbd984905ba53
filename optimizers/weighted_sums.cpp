#include "optimizers/weighted_sums.hpp"

#include <torch/torch.h>

namespace bluefog::optimizers {

void hold_sum(const at::Tensor& z, const at::Tensor& w, double taken, const at::Tensor& x) {
  at::Tensor place = x.narrow(0, 0, z.numel());
  at::mul_out(place, z, w.to(at::kDouble).sub(taken).to(z.scalar_type()));
}

void add_stepped(const at::Tensor& stepped, const at::Tensor& x) {
  x.narrow(0, 0, stepped.numel()).add_(stepped);
}

void show_quotient(const at::Tensor& x, const at::Tensor& w, const at::Tensor& z) {
  at::Tensor place = z;
  // By a tensor: a divisor that is a number would become a factor on a device, which rounds twice.
  at::div_out(place, x.narrow(0, 0, z.numel()), w.to(z.scalar_type()));
}

}  // namespace bluefog::optimizers
