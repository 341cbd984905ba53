#include "optimizers/buckets/gradient_hooks.hpp"

#include <fmt/format.h>
#include <torch/torch.h>
// The engine comes with LibTorch's own sources of autograd.
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

#include "bluefog_cpp/error.hpp"

namespace bluefog::optimizers {
namespace {

namespace autograd = torch::autograd;

class Hook final : public autograd::PostAccumulateGradHook {
 public:
  Hook(std::shared_ptr<const GradientHooks::OnReady> on_ready, std::size_t bucket,
       std::size_t segment)
      : on_ready_(std::move(on_ready)), bucket_(bucket), segment_(segment) {}

  void operator()(const autograd::Variable& /*parameter*/) override {
    (*on_ready_)(bucket_, segment_);
  }

 private:
  std::shared_ptr<const GradientHooks::OnReady> on_ready_;
  std::size_t bucket_;
  std::size_t segment_;
};

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

}  // namespace

std::string why_not_hooked(const NamedTensors& parameters) {
  for (const auto& [name, tensor] : parameters) {
    if (autograd::impl::post_acc_grad_hooks(tensor)) {
      return fmt::format(
          "parameter '{}': expected its post-accumulate gradient hook to be free, found one "
          "(LibTorch has room for one)",
          name);
    }
  }
  return {};
}

GradientHooks::GradientHooks(const std::vector<Bucket>& buckets, OnReady on_ready,
                             RethrowInBackward rethrow)
    : on_ready_(std::make_shared<const OnReady>(rethrowing(std::move(on_ready), rethrow))),
      rethrow_(std::move(rethrow)) {
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    const auto& segments = buckets[b].segments();
    for (std::size_t i = 0; i < segments.size(); ++i) {
      auto hook = std::make_unique<Hook>(on_ready_, b, i);
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

void GradientHooks::call_after_backward(std::function<void()> callback) const {
  autograd::Engine::get_default_engine().queue_callback(rethrowing(std::move(callback), rethrow_));
}

}  // namespace bluefog::optimizers
