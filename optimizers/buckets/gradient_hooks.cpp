#include "optimizers/buckets/gradient_hooks.hpp"

#include <fmt/format.h>
#include <torch/torch.h>
// Hooks come with LibTorch's own sources of autograd.
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>

#include "bluefog_cpp/error.hpp"

namespace bluefog::optimizers {
namespace {

namespace autograd = torch::autograd;

bool is_in_place(const at::Tensor& parameter, const void* hook) {
  return autograd::impl::post_acc_grad_hooks(parameter).get() == hook;
}

/// `function`, whose errors leave by `rethrow`.
template <typename... Arguments>
std::function<void(Arguments...)> rethrowing(std::function<void(Arguments...)> function,
                                             const RethrowInBackward& rethrow) {
  if (!rethrow) {
    return function;
  }
  return [function = std::move(function), rethrow](Arguments... arguments) {
    try {
      function(arguments...);
    } catch (...) {
      rethrow(std::current_exception());
      throw;
    }
  };
}

// DistributedDataParallel's reducer waits behind the node that adds to a gradient.
bool is_reduced_by_torch(const at::Tensor& parameter) {
  const auto accumulator = autograd::impl::try_get_grad_accumulator(parameter);
  return accumulator && std::ranges::any_of(accumulator->post_hooks(), [](const auto& hook) {
           return dynamic_cast<const autograd::utils::LambdaPostHook*>(hook.get()) != nullptr;
         });
}

std::string why_not_alone(const std::string& name, const at::Tensor& parameter) {
  if (!is_reduced_by_torch(parameter)) {
    return {};
  }
  return fmt::format(
      "parameter '{}': expected nobody else to average its gradient, found torch's "
      "DistributedDataParallel around the model: leave it away, or keep it with the plain optimizer "
      "and its communication hook bluefog_cpp.torch.ddp_comm_hooks.allreduce_hook",
      name);
}

}  // namespace

std::string why_not_hooked(const NamedTensors& parameters) {
  for (const auto& [name, tensor] : parameters) {
    if (autograd::impl::post_acc_grad_hooks(tensor)) {
      return fmt::format(
          "parameter '{}': expected its post-accumulate gradient hook to be free, found one "
          "(LibTorch has room for one)",
          name);
    }
    if (std::string why = why_not_alone(name, tensor); !why.empty()) {
      return why;
    }
  }
  return {};
}

class GradientHooks::Hook final : public autograd::PostAccumulateGradHook {
 public:
  Hook(std::shared_ptr<Shared> shared, std::size_t bucket, std::size_t segment)
      : shared_(std::move(shared)), bucket_(bucket), segment_(segment) {}

  void operator()(const autograd::Variable& /*parameter*/) override {
    const BackwardPasses::Noted pass = shared_->passes.note();
    shared_->listener.on_ready({.bucket = bucket_,
                                .segment = segment_,
                                .is_first_of_pass = pass.is_first,
                                .is_inside_another_pass = pass.is_inside_another});
  }

  void compiled_args(torch::dynamo::autograd::CompiledNodeArgs& /*arguments*/) const override {
    shared_->listener.on_compiled();
  }

 private:
  std::shared_ptr<Shared> shared_;
  std::size_t bucket_;
  std::size_t segment_;
};

GradientHooks::GradientHooks(const std::vector<Bucket>& buckets, GradientListener listener,
                             const RethrowInBackward& rethrow) {
  listener.on_ready = rethrowing(std::move(listener.on_ready), rethrow);
  listener.on_compiled = rethrowing(std::move(listener.on_compiled), rethrow);
  shared_ = std::make_shared<Shared>(std::move(listener), rethrow);
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    const auto& segments = buckets[b].segments();
    for (std::size_t i = 0; i < segments.size(); ++i) {
      auto hook = std::make_unique<Hook>(shared_, b, i);
      hooked_.push_back(
          {.parameter = segments[i].parameter, .name = segments[i].name, .hook = hook.get()});
      autograd::impl::set_post_acc_grad_hooks(segments[i].parameter, std::move(hook));
    }
  }
}

GradientHooks::~GradientHooks() {
  for (const Hooked& hooked : hooked_) {
    if (is_in_place(hooked.parameter, hooked.hook)) {
      autograd::impl::set_post_acc_grad_hooks(hooked.parameter, nullptr);
    }
  }
}

void GradientHooks::check_in_place() const {
  for (const Hooked& hooked : hooked_) {
    if (!is_in_place(hooked.parameter, hooked.hook)) {
      throw StateError(fmt::format(
          "parameter '{}': expected its post-accumulate gradient hook to be the one that averages "
          "gradients, found another one, registered since (LibTorch has room for one): its gradient "
          "is this rank's own",
          hooked.name));
    }
  }
}

void GradientHooks::check_alone(std::string_view where) const {
  for (const Hooked& hooked : hooked_) {
    if (const std::string why = why_not_alone(hooked.name, hooked.parameter); !why.empty()) {
      throw StateError(fmt::format("{}, {}", where, why));
    }
  }
}

void GradientHooks::check_ends() const {
  if (shared_->passes.has_lost_end()) {
    throw StateError(
        "expected backward passes to end on the thread that began them, found one inside of another "
        "that has ended elsewhere (a reentrant checkpoint or a hook across devices)");
  }
}

}  // namespace bluefog::optimizers
