#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "optimizers/bucket.hpp"

namespace bluefog::optimizers {

/// Calls back when a backward pass has finished the gradient of a parameter.
///
/// LibTorch keeps one hook of this kind for each tensor; this object owns it for the parameters of
/// its buckets, and clears it at its end.
class GradientHooks {
 public:
  /// Called by the thread that runs the backward pass, with the gradient in place.
  using OnReady = std::function<void(std::size_t bucket, std::size_t segment)>;

  /// @throws StateError naming a parameter whose hook is taken.
  GradientHooks(const std::vector<Bucket>& buckets, OnReady on_ready);
  GradientHooks(const GradientHooks&) = delete;
  GradientHooks& operator=(const GradientHooks&) = delete;
  ~GradientHooks();

  /// @throws StateError naming a parameter whose hook somebody else has taken since.
  void check_in_place() const;

 private:
  std::shared_ptr<const OnReady> on_ready_;
  struct Hooked {
    at::Tensor parameter;
    std::string name;
    const void* hook = nullptr;
  };
  std::vector<Hooked> hooked_;
};

/// Runs `callback` when the backward pass that is under way on this thread ends; an exception from
/// it leaves `backward`. To be called from a hook.
void call_after_backward(std::function<void()> callback);

}  // namespace bluefog::optimizers
