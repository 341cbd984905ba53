#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "optimizers/bucket.hpp"
#include "optimizers/parameter.hpp"
#include "optimizers/rethrow_in_backward.hpp"

namespace bluefog::optimizers {

/// Why the gradients of `parameters` cannot be listened to, naming the first one at fault; empty if
/// they can.
[[nodiscard]] std::string why_not_hooked(const NamedTensors& parameters);

/// Calls back when a backward pass has finished the gradient of a parameter.
///
/// LibTorch keeps one hook of this kind for each tensor; this object owns it for the parameters of
/// its buckets, and clears it at its end.
class GradientHooks {
 public:
  /// Called by the thread that runs the backward pass, with the gradient in place.
  using OnReady = std::function<void(std::size_t bucket, std::size_t segment)>;

  /// The parameters' hooks are free (`why_not_hooked`).
  GradientHooks(const std::vector<Bucket>& buckets, OnReady on_ready, RethrowInBackward rethrow);
  GradientHooks(const GradientHooks&) = delete;
  GradientHooks& operator=(const GradientHooks&) = delete;
  ~GradientHooks();

  /// @throws StateError naming a parameter whose hook somebody else has taken since.
  void check_in_place() const;

  /// Runs `callback` when the backward pass under way on this thread ends; its exceptions leave
  /// `backward`. To be called from a hook.
  void call_after_backward(std::function<void()> callback) const;

 private:
  std::shared_ptr<const OnReady> on_ready_;
  RethrowInBackward rethrow_;
  struct Hooked {
    at::Tensor parameter;
    std::string name;
    const void* hook = nullptr;
  };
  std::vector<Hooked> hooked_;
};

}  // namespace bluefog::optimizers
