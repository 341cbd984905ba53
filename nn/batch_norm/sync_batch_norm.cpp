#include "nn/sync_batch_norm.hpp"

#include <fmt/format.h>
#include <torch/torch.h>

#include <optional>
#include <utility>

#include "bluefog_cpp/error.hpp"
#include "nn/batch_statistics.hpp"
#include "ops/calls/validation.hpp"
#include "optimizers/parameter.hpp"

namespace bluefog::nn {
namespace {

/// The values that the backward pass needs besides tensors.
struct Step : torch::CustomClassHolder {
  Step(std::shared_ptr<Context> used, double epsilon) : context(std::move(used)), eps(epsilon) {}
  std::shared_ptr<Context> context;
  double eps;
  std::int64_t count = 0;
};

/// Autograd's functions know absent tensors as empty optionals only.
using MaybeTensor = std::optional<at::Tensor>;

MaybeTensor if_there(const at::Tensor& tensor) {
  return tensor.defined() ? MaybeTensor(tensor) : std::nullopt;
}

struct Normalization : torch::autograd::Function<Normalization> {
  static at::Tensor forward(torch::autograd::AutogradContext* saved, const at::Tensor& input,
                            const MaybeTensor& weight, const MaybeTensor& bias,
                            const BatchStatistics& statistics, c10::intrusive_ptr<Step> step) {
    const at::Tensor gamma = weight.value_or(at::Tensor());
    saved->save_for_backward({input, gamma, statistics.mean, statistics.variance});
    step->count = statistics.count;
    at::Tensor output = normalize(input, statistics, gamma, bias.value_or(at::Tensor()), step->eps);
    saved->saved_data["step"] = c10::IValue::make_capsule(std::move(step));
    return output;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* saved,
                                                 const torch::autograd::variable_list& grads) {
    if (at::GradMode::is_enabled()) {
      throw UnsupportedError("SyncBatchNorm is differentiable once: create_graph is not for it");
    }
    const auto tensors = saved->get_saved_variables();
    const auto capsule = saved->saved_data["step"].toCapsule();
    const auto& step = static_cast<const Step&>(*capsule);
    const at::Tensor& weight = tensors[1];
    auto gradients = batch_norm_gradients(
        *step.context, grads[0], tensors[0],
        {.mean = tensors[2], .variance = tensors[3], .count = step.count}, weight, step.eps,
        saved->needs_input_grad(0) ? GradientsWanted::InputAndParameters
                                   : GradientsWanted::Parameters);
    if (weight.defined()) {  // and a bias with it
      gradients.weight = gradients.weight.to(weight.scalar_type());
      gradients.bias = gradients.bias.to(weight.scalar_type());
    } else {
      gradients.weight = gradients.bias = at::Tensor();
    }
    return {gradients.input, gradients.weight, gradients.bias, at::Tensor(), at::Tensor()};
  }
};

}  // namespace

SyncBatchNormImpl::SyncBatchNormImpl(std::shared_ptr<Context> context,
                                     const torch::nn::BatchNormOptions& wanted)
    : NormImplBase(wanted), context_(std::move(context)) {
  if (!context_) {
    throw InvalidArgument("SyncBatchNorm: expected a context, found none");
  }
}

at::Tensor SyncBatchNormImpl::forward(const at::Tensor& input) {
  if (is_training() || !running_mean.defined()) {
    ops::validate(*context_, [&] { _check_input_dim(input); });
    return synchronized(input);
  }
  _check_input_dim(input);
  return torch::batch_norm(input, weight, bias, running_mean, running_var, /*training=*/false, 0.0,
                           options.eps(), /*cudnn_enabled=*/false);
}

at::Tensor SyncBatchNormImpl::synchronized(const at::Tensor& input) {
  const BatchStatistics statistics = batch_statistics(*context_, input);
  if (is_training() && running_mean.defined()) {
    num_batches_tracked += 1;
    const double momentum =
        options.momentum().has_value()
            ? *options.momentum()
            : 1.0 / static_cast<double>(num_batches_tracked.item<std::int64_t>());
    update_running(running_mean, running_var, statistics, momentum);
  }
  return Normalization::apply(input, if_there(weight), if_there(bias), statistics,
                              c10::make_intrusive<Step>(context_, options.eps()));
}

void SyncBatchNormImpl::_check_input_dim(const at::Tensor& input) {
  if (input.dim() < 2 || input.size(1) != options.num_features()) {
    throw InvalidArgument(
        fmt::format("SyncBatchNorm: expected an input of shape [N, {}, ...], found {}",
                    options.num_features(), optimizers::describe(input)));
  }
}

void SyncBatchNormImpl::pretty_print(std::ostream& stream) const {
  stream << "bluefog::nn::SyncBatchNorm(" << options.num_features() << ", eps=" << options.eps()
         << ", affine=" << options.affine()
         << ", track_running_stats=" << options.track_running_stats() << ")";
}

}  // namespace bluefog::nn
