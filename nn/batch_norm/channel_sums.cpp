#include "nn/batch_norm/channel_sums.hpp"

#include <torch/torch.h>

#include <optional>
#include <tuple>
#include <type_traits>
#include <vector>

namespace bluefog::nn {
namespace {

at::Tensor as_statistics(const at::Tensor& per_channel, const at::Tensor& input) {
  return per_channel.defined() ? per_channel.detach().to(statistics_dtype(input)) : per_channel;
}

std::optional<at::Tensor> if_defined(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional<at::Tensor>(tensor) : std::nullopt;
}

/// The values per channel in the shape [1, C, 1, …], which fits the dimensions of `input`.
at::Tensor like_channels_of(const at::Tensor& input, const at::Tensor& per_channel) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(input.dim()), 1);
  sizes[1] = per_channel.numel();
  return per_channel.view(sizes);
}

/// dx = scale dy + slope (x − mean) + shift, per channel.
template <typename Acc>
struct Line {
  const Acc* scale;
  const Acc* slope;
  const Acc* mean;
  const Acc* shift;

  template <typename T>
  void apply(T* out, const T* dy, const T* x, std::int64_t c) const {
    *out = static_cast<T>(scale[c] * static_cast<Acc>(*dy) +
                          slope[c] * (static_cast<Acc>(*x) - mean[c]) + shift[c]);
  }
};

/// Rows in which every element belongs to another channel.
template <typename T, typename Acc>
void apply_to_rows(const Line<Acc>& line, T* out, const T* dy, const T* x, std::int64_t rows,
                   std::int64_t channels) {
  at::parallel_for(0, rows, 1 + 32768 / channels, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin * channels; i < end * channels; i += channels) {
      for (std::int64_t c = 0; c < channels; ++c) {
        line.apply(out + i + c, dy + i + c, x + i + c, c);
      }
    }
  });
}

/// Planes of `size` elements of one channel.
template <typename T, typename Acc>
void apply_to_planes(const Line<Acc>& line, T* out, const T* dy, const T* x, std::int64_t planes,
                     std::int64_t channels, std::int64_t size) {
  at::parallel_for(0, planes, 1 + 32768 / size, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t plane = begin; plane < end; ++plane) {
      for (std::int64_t i = plane * size; i < (plane + 1) * size; ++i) {
        line.apply(out + i, dy + i, x + i, plane % channels);
      }
    }
  });
}

bool has_channels_innermost(const at::Tensor& input) {
  return elements_per_channel(input) == input.size(0) ||
         input.suggest_memory_format() != at::MemoryFormat::Contiguous;
}

}  // namespace

at::ScalarType statistics_dtype(const at::Tensor& input) {
  return input.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

at::Tensor in_order_of(const at::Tensor& like, const at::Tensor& tensor) {
  return tensor.detach().contiguous(like.suggest_memory_format());
}

std::int64_t elements_per_channel(const at::Tensor& input) {
  return input.size(1) == 0 ? 0 : input.numel() / input.size(1);
}

Moments moments_of(const at::Tensor& input) {
  const auto options = input.options().dtype(statistics_dtype(input)).requires_grad(false);
  const at::Tensor zeros = at::zeros({input.size(1)}, options);
  if (input.numel() == 0) {
    return {.mean = zeros, .variance = zeros};
  }
  // Running statistics tell which dtype the results are to have; momentum 0 leaves them alone.
  Moments moments;
  std::tie(moments.mean, moments.variance) =
      at::batch_norm_update_stats(in_order_of(input, input), zeros, zeros, 0.0);
  return moments;
}

at::Tensor normalize(const at::Tensor& input, const Moments& moments, const at::Tensor& weight,
                     const at::Tensor& bias, double eps) {
  if (input.numel() == 0) {
    return at::empty_like(input);
  }
  return std::get<0>(
      at::native_batch_norm(in_order_of(input, input), if_defined(as_statistics(weight, input)),
                            if_defined(as_statistics(bias, input)), moments.mean, moments.variance,
                            /*training=*/false, /*momentum=*/0.0, eps));
}

GradientSums gradient_sums(const at::Tensor& grad_output, const at::Tensor& input,
                           const Moments& moments, double eps) {
  if (input.numel() == 0) {
    return {.dy = at::zeros_like(moments.mean), .dy_normalized = at::zeros_like(moments.mean)};
  }
  // On CUDA the statistics of a forward pass must be there; empty ones are not looked at.
  const at::Tensor none = at::empty({0}, moments.mean.options());
  const auto gradients = at::native_batch_norm_backward(
      in_order_of(input, grad_output), in_order_of(input, input), std::nullopt, moments.mean,
      moments.variance, none, none, /*train=*/false, eps, {false, true, true});
  return {.dy = std::get<2>(gradients), .dy_normalized = std::get<1>(gradients)};
}

at::Tensor input_gradient(const at::Tensor& grad_output, const at::Tensor& input,
                          const Moments& moments, const GradientSums& means,
                          const at::Tensor& weight, double eps) {
  const at::Tensor dy = in_order_of(input, grad_output);
  const at::Tensor x = in_order_of(input, input);
  if (x.numel() == 0) {
    return at::empty_like(x);
  }
  const at::Tensor inverse = (moments.variance + eps).rsqrt();
  const at::Tensor gamma = as_statistics(weight, input);
  const at::Tensor scale = gamma.defined() ? gamma * inverse : inverse;
  const at::Tensor slope = -scale * inverse * means.dy_normalized;
  const at::Tensor shift = -scale * means.dy;
  if (!x.is_cpu()) {
    const auto by_channel = [&x](const at::Tensor& values) { return like_channels_of(x, values); };
    const at::Tensor slopes = by_channel(slope) * (x - by_channel(moments.mean));
    return in_order_of(x,
                       (by_channel(scale) * dy + slopes + by_channel(shift)).to(x.scalar_type()));
  }
  at::Tensor out = at::empty_like(x);
  const std::int64_t channels = x.size(1);
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kHalf, at::kBFloat16, x.scalar_type(), "sync_batch_norm_backward", [&] {
        using Acc = std::conditional_t<std::is_same_v<scalar_t, double>, double, float>;
        const Line<Acc> line{.scale = scale.const_data_ptr<Acc>(),
                             .slope = slope.const_data_ptr<Acc>(),
                             .mean = moments.mean.const_data_ptr<Acc>(),
                             .shift = shift.const_data_ptr<Acc>()};
        auto* to = out.mutable_data_ptr<scalar_t>();
        const auto* from = dy.const_data_ptr<scalar_t>();
        const auto* at = x.const_data_ptr<scalar_t>();
        if (has_channels_innermost(x)) {
          apply_to_rows(line, to, from, at, elements_per_channel(x), channels);
        } else {
          const std::int64_t planes = x.size(0) * channels;
          apply_to_planes(line, to, from, at, planes, channels, x.numel() / planes);
        }
      });
  return out;
}

}  // namespace bluefog::nn
