#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "optimizers/bucket.hpp"
#include "optimizers/buckets/backward_passes.hpp"
#include "optimizers/parameter.hpp"
#include "optimizers/rethrow_in_backward.hpp"

namespace bluefog::optimizers {

/// Why the gradients of `parameters` cannot be listened to, naming the first one at fault; empty if
/// they can.
[[nodiscard]] std::string why_not_hooked(const NamedTensors& parameters);

/// A backward pass has added to the gradient of a parameter.
struct GradientArrival {
  std::size_t bucket = 0;
  std::size_t segment = 0;
  /// No gradient has arrived in this pass before.
  bool is_first_of_pass = false;
  /// A pass inside of it has: another one may come to the same parameter.
  bool is_inside_another_pass = false;
};

/// Functions that backward passes call, on the threads that run them. Exceptions leave `backward`.
struct GradientListener {
  /// The gradient is in place.
  std::function<void(const GradientArrival& arrival)> on_ready;
  /// A pass in which gradients arrived ends, with all that ran inside of it. May be empty.
  std::function<void()> on_end{};
  /// Compiled autograd would run a pass without calling `on_ready`. It throws.
  std::function<void()> on_compiled;
};

/// Calls back when a backward pass has finished the gradient of a parameter.
///
/// LibTorch keeps one hook of this kind for each tensor; this object owns it for the parameters of
/// its buckets, and clears it at its end.
class GradientHooks {
 public:
  /// The parameters' hooks are free (`why_not_hooked`).
  GradientHooks(const std::vector<Bucket>& buckets, GradientListener listener,
                const RethrowInBackward& rethrow);
  GradientHooks(const GradientHooks&) = delete;
  GradientHooks& operator=(const GradientHooks&) = delete;
  ~GradientHooks();

  /// @throws StateError naming a parameter whose hook somebody else has taken since.
  void check_in_place() const;

  /// @param where the caller, for the message.
  /// @throws StateError naming a parameter whose gradient torch's DistributedDataParallel, which
  ///   was put around the model since, averages too.
  void check_alone(std::string_view where) const;

  /// @throws StateError if the last pass ended where nobody saw it (`BackwardPasses`).
  void check_ends() const;

 private:
  class Hook;
  struct Shared {
    Shared(GradientListener given, const RethrowInBackward& rethrow)
        : listener(std::move(given)), passes(listener.on_end, rethrow) {}
    GradientListener listener;
    BackwardPasses passes;
  };
  std::shared_ptr<Shared> shared_;
  struct Hooked {
    at::Tensor parameter;
    std::string name;
    const void* hook = nullptr;
  };
  std::vector<Hooked> hooked_;
};

}  // namespace bluefog::optimizers
