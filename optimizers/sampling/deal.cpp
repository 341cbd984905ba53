#include "optimizers/sampling/deal.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randperm.h>

#include <algorithm>
#include <numeric>

namespace bluefog::optimizers {
namespace {

std::int64_t quotient_up(std::int64_t dividend, std::int64_t divisor) {
  return (dividend + divisor - 1) / divisor;
}

/// `tensor` again and again, up to that length.
at::Tensor repeated(const at::Tensor& tensor, std::int64_t length) {
  return tensor.repeat({quotient_up(std::max<std::int64_t>(length, 1), tensor.numel())})
      .slice(0, 0, length);
}

/// True for each sample that is not among the first of these shares.
at::Tensor without(const std::vector<at::Tensor>& shares, const std::vector<std::int64_t>& firsts,
                   std::int64_t count) {
  at::Tensor is_left = at::ones({count}, at::kBool);
  for (std::size_t i = 0; i < shares.size(); ++i) {
    const at::Tensor first = shares[i].slice(0, 0, firsts[i]);
    is_left.index_fill_(0, first.masked_select(first.ge(0)), false);
  }
  return is_left;
}

}  // namespace

std::vector<at::Tensor> Dealing::first_shares(std::int64_t epoch, int ranks) const {
  const std::int64_t each = quotient_up(count, ranks);
  const at::Tensor padded =
      repeated(shuffles ? order(epoch, count) : at::arange(count, at::kLong), each * ranks);
  std::vector<at::Tensor> shares;
  for (int rank = 0; rank < ranks; ++rank) {
    shares.push_back(padded.slice(0, rank, std::nullopt, ranks).contiguous());
  }
  return shares;
}

std::vector<at::Tensor> Dealing::later_shares(std::int64_t epoch,
                                              const std::vector<at::Tensor>& shares,
                                              const std::vector<std::int64_t>& drawn) const {
  at::Tensor rest = without(shares, drawn, count).nonzero().flatten();
  if (shuffles) {
    rest = rest.index_select(0, order(epoch, rest.numel()));
  }
  const std::int64_t all_drawn = std::accumulate(drawn.begin(), drawn.end(), std::int64_t{0});
  // Whoever has drawn more, since loaders fetch ahead, trains on all of it.
  const std::int64_t total =
      std::max(quotient_up(all_drawn + rest.numel(), std::ssize(shares)), std::ranges::max(drawn));
  const std::int64_t wanted = total * std::ssize(shares) - all_drawn;
  const at::Tensor padded =
      repeated(rest.numel() > 0 ? rest : at::arange(count, at::kLong), wanted);
  std::vector<at::Tensor> later;
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    const std::int64_t more = total - drawn[i];
    later.push_back(
        at::cat({shares[i].slice(0, 0, drawn[i]), padded.slice(0, begin, begin + more)}));
    begin += more;
  }
  return later;
}

std::int64_t Dealing::missed_by(const std::vector<at::Tensor>& shares) const {
  std::vector<std::int64_t> whole;
  for (const at::Tensor& share : shares) {
    whole.push_back(share.numel());
  }
  return without(shares, whole, count).sum().item<std::int64_t>();
}

at::Tensor Dealing::order(std::int64_t epoch, std::int64_t of) const {
  at::Generator random =
      at::make_generator<at::CPUGeneratorImpl>(seed + static_cast<std::uint64_t>(epoch));
  return at::randperm(of, random, at::kLong);
}

}  // namespace bluefog::optimizers
