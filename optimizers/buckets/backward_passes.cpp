#include "optimizers/buckets/backward_passes.hpp"

// The engine comes with LibTorch's own sources of autograd.
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <utility>

#include "bluefog_cpp/error.hpp"

namespace bluefog::optimizers {
namespace {

namespace autograd = torch::autograd;

constexpr int kUnknown = -1;

bool is_in_a_pass() { return autograd::get_current_graph_task_id() >= 0; }

// LibTorch hands out one member of the pass under way, and its depth is another one.
int depth_of_pass() {
  if (!is_in_a_pass()) {
    return 0;
  }
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winvalid-offsetof"
  constexpr std::size_t offset = offsetof(autograd::GraphTask, exec_info_);
#pragma GCC diagnostic pop
  const auto* const member =
      reinterpret_cast<const char*>(autograd::get_current_graph_task_exec_info());
  const auto* const task = reinterpret_cast<const autograd::GraphTask*>(member - offset);
  if (task->id_ != static_cast<std::uint64_t>(autograd::get_current_graph_task_id())) {
    throw InternalError("expected LibTorch's GraphTask as in its headers, found another layout");
  }
  return task->reentrant_depth_;
}

}  // namespace

bool accumulates_into(const at::Tensor& parameter) {
  const auto* const executed = autograd::get_current_graph_task_exec_info();
  if (executed == nullptr || executed->empty()) {
    return true;
  }
  const auto found = executed->find(autograd::impl::try_get_grad_accumulator(parameter).get());
  return found != executed->end() && found->second.needed_;
}

struct BackwardPasses::Shared {
  std::mutex mutex;
  std::function<void()> on_end;
  RethrowInBackward rethrow;
  /// Passes noted so far: the number of the last one.
  std::uint64_t count = 0;
  bool is_under_way = false;
  /// LibTorch's number for the outermost pass, where it is known.
  int outermost = kUnknown;
  bool has_lost_end = false;
  /// An exception has ended the last pass.
  bool has_failed = false;

  enum class Ending { Regular, Failed, Unseen };

  void end(std::uint64_t pass, Ending ending) {
    const std::lock_guard lock(mutex);
    if (pass == count) {
      is_under_way = false;
      has_lost_end = ending == Ending::Unseen;
      has_failed = ending == Ending::Failed;
    }
  }
};

/// Waits in a pass for its end. If that pass ran inside of another one it goes on to the other when
/// the engine destroys the inner pass, which it does where the outer one is under way again.
class BackwardPasses::End {
 public:
  static void queue(std::weak_ptr<Shared> shared, std::uint64_t pass) {
    auto end = std::make_shared<End>(std::move(shared), pass);
    autograd::Engine::get_default_engine().queue_callback([end] { end->run(); });
  }

  End(std::weak_ptr<Shared> shared, std::uint64_t pass) : shared_(std::move(shared)), pass_(pass) {}
  End(const End&) = delete;
  End& operator=(const End&) = delete;

  ~End() {
    const auto shared = shared_.lock();
    if (is_done_ || !shared) {
      return;
    }
    try {
      if (is_in_a_pass()) {
        queue(shared, pass_);
        return;
      }
    } catch (...) {  // NOLINT: the pass counts as one whose end nobody saw
      was_inside_ = true;
    }
    // Compiled passes end without running what waits for it.
    const bool has_failed = std::uncaught_exceptions() > exceptions_;
    shared->end(pass_, was_inside_  ? Shared::Ending::Unseen
                       : has_failed ? Shared::Ending::Failed
                                    : Shared::Ending::Regular);
  }

  void run() {
    was_inside_ = depth_of_pass() > 0;
    if (was_inside_) {
      return;
    }
    is_done_ = true;
    const auto shared = shared_.lock();
    if (!shared) {
      return;
    }
    shared->end(pass_, Shared::Ending::Regular);
    try {
      if (shared->on_end) {
        shared->on_end();
      }
    } catch (...) {
      if (shared->rethrow) {
        shared->rethrow(std::current_exception());
      }
      throw;
    }
  }

 private:
  std::weak_ptr<Shared> shared_;
  std::uint64_t pass_;
  int exceptions_ = std::uncaught_exceptions();
  bool was_inside_ = false;
  bool is_done_ = false;
};

BackwardPasses::BackwardPasses(std::function<void()> on_end, RethrowInBackward rethrow)
    : shared_(std::make_shared<Shared>()) {
  shared_->on_end = std::move(on_end);
  shared_->rethrow = std::move(rethrow);
}

BackwardPasses::~BackwardPasses() = default;

BackwardPasses::Noted BackwardPasses::note() {
  const bool is_inside = depth_of_pass() > 0;
  const int outermost = is_inside ? kUnknown : autograd::get_current_graph_task_id();
  std::uint64_t pass = 0;
  bool follows_failure = false;
  {
    const std::lock_guard lock(shared_->mutex);
    // Threads of a device let go of a pass that has failed a little later than `backward` throws.
    const bool is_another =
        outermost != kUnknown && shared_->outermost != kUnknown && outermost != shared_->outermost;
    if (shared_->is_under_way && !is_another) {
      shared_->outermost = is_inside ? shared_->outermost : outermost;
      return {.is_first = false, .is_inside_another = is_inside};
    }
    follows_failure = shared_->has_failed || shared_->is_under_way;
    shared_->is_under_way = true;
    shared_->has_failed = false;
    shared_->outermost = outermost;
    shared_->has_lost_end = false;
    pass = ++shared_->count;
  }
  End::queue(shared_, pass);
  return {.is_first = true, .is_inside_another = is_inside, .follows_failure = follows_failure};
}

bool BackwardPasses::has_lost_end() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->has_lost_end;
}

}  // namespace bluefog::optimizers
