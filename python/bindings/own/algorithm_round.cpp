#include "python/bindings/own/algorithm_round.hpp"

#include <ATen/ops/empty.h>
#include <c10/core/StreamGuard.h>
#include <fmt/format.h>

#include <memory>
#include <numeric>
#include <optional>

#include "bluefog_cpp/error.hpp"
#include "ops/collectives.hpp"
#include "ops/neighbor_allgather.hpp"
#include "ops/neighbor_allreduce.hpp"
#include "optimizers/parameter.hpp"
#include "optimizers/round_calls.hpp"
#include "python/bindings/tensor_view.hpp"

namespace bluefog::python {
namespace {

/// Room for gathered tensors, made when their lengths are known, by whatever thread: on a device on
/// the stream of the thread that has called.
class GatheredRoom {
 public:
  explicit GatheredRoom(const at::Tensor& like)
      : options_(like.options().requires_grad(false)), stream_(current_stream(like)) {}

  BufferView make(const std::vector<std::int64_t>& counts) {
    counts_ = counts;
    const c10::OptionalStreamGuard callers(stream_);
    all_ = at::empty({std::accumulate(counts.begin(), counts.end(), std::int64_t{0})}, options_);
    return view_of(all_);
  }

  [[nodiscard]] std::vector<at::Tensor> parts() const {
    std::vector<at::Tensor> parts;
    std::int64_t begin = 0;
    for (const std::int64_t count : counts_) {
      parts.push_back(all_.narrow(0, begin, count));
      begin += count;
    }
    return parts;
  }

 private:
  at::TensorOptions options_;
  std::optional<c10::Stream> stream_;
  std::vector<std::int64_t> counts_;
  at::Tensor all_;
};

}  // namespace

AlgorithmRound::AlgorithmRound(Context& context, const std::vector<optimizers::Bucket>& buckets,
                               const optimizers::Round* round,
                               const optimizers::StepBucket& step_bucket, std::string algorithm,
                               std::size_t calls)
    : context_(context),
      buckets_(buckets),
      round_(round),
      step_bucket_(&step_bucket),
      algorithm_(std::move(algorithm)),
      call_count_(calls) {}

std::string AlgorithmRound::place() const {
  const std::string round =
      round_ == nullptr ? std::string() : fmt::format(", round {}", round_->index);
  return fmt::format("rank {}, {}{}", context_.rank(), algorithm_, round);
}

const optimizers::Round& AlgorithmRound::under_way() const {
  if (has_ended_ || round_ == nullptr) {
    throw StateError(fmt::format("rank {}, {}: expected a call from `step` while it runs, found {}",
                                 context_.rank(), algorithm_,
                                 has_ended_ ? "one after it" : "a step that does not communicate"));
  }
  return *round_;
}

void AlgorithmRound::local_step(std::size_t bucket) {
  if (has_ended_) {
    throw StateError(
        fmt::format("rank {}, {}: expected a call from `step` while it runs, found one after it",
                    context_.rank(), algorithm_));
  }
  if (bucket != stepped_ || stepped_ == buckets_.size()) {
    throw StateError(fmt::format(
        "{}, local_step: expected each of {} buckets once, in their order, found bucket {} after {}",
        place(), buckets_.size(), bucket, stepped_));
  }
  ++stepped_;
  (*step_bucket_)(buckets_[bucket]);
}

std::string AlgorithmRound::begin_call(std::string_view what) {
  if (issued_ == call_count_) {
    throw StateError(fmt::format(
        "{}, {}: expected {} averages and gathers in a round (`calls_due`), found one more",
        place(), what, call_count_));
  }
  return fmt::format("{} {} of {}", what, ++issued_, algorithm_);
}

ops::PlanCheck AlgorithmRound::check_once() {
  return std::exchange(is_checked_, true) ? ops::PlanCheck::Trusted : round_->check;
}

const std::shared_ptr<const NeighborPlan>& AlgorithmRound::neighbors(std::string_view what) const {
  const optimizers::Round& round = under_way();
  if (!round.plan) {
    throw StateError(fmt::format(
        "{}, {}: expected neighbours in this round, found none (`averages_with_neighbors`)",
        place(), what));
  }
  return round.plan;
}

std::size_t AlgorithmRound::start_average(const at::Tensor& values, bool is_over_all) {
  constexpr std::string_view kWhat = "average";
  const auto plan = is_over_all ? nullptr : neighbors(kWhat);
  static_cast<void>(under_way());
  if (!values.is_floating_point()) {
    throw InvalidArgument(fmt::format("{}, {}: expected values of a floating dtype, found {}",
                                      place(), kWhat, optimizers::describe(values)));
  }
  const BufferView view = view_of(values);
  const std::string name = begin_call(kWhat);
  if (is_over_all) {
    ops::AllreduceOptions options;
    options.name = name;
    works_.push_back(ops::allreduce_nonblocking(context_, view, options));
  } else {
    works_.push_back(ops::neighbor_allreduce_nonblocking(context_, view, plan,
                                                         {.name = name, .check = check_once()}));
  }
  return works_.size() - 1;
}

void AlgorithmRound::wait(std::size_t call) {
  if (call < works_.size()) {  // else the step has ended, and with it all of its calls
    optimizers::wait_on_current_stream(works_[call]);
  }
}

std::vector<std::pair<int, at::Tensor>> AlgorithmRound::gather(const at::Tensor& values) {
  constexpr std::string_view kWhat = "gather";
  const auto plan = neighbors(kWhat);
  const BufferView own = view_of(values);
  GatheredRoom room(values);
  const std::string name = begin_call(kWhat);
  ops::neighbor_allgather(
      context_, own, [&room](const std::vector<std::int64_t>& counts) { return room.make(counts); },
      plan, {.name = name, .check = check_once()});
  std::vector<std::pair<int, at::Tensor>> gathered;
  for (at::Tensor& part : room.parts()) {
    gathered.emplace_back(plan->sources[gathered.size()].rank, std::move(part));
  }
  return gathered;
}

void AlgorithmRound::end() {
  if (stepped_ != buckets_.size() || issued_ != call_count_) {
    throw StateError(
        fmt::format("{}: expected a local step of each of {} buckets, and {} averages and gathers "
                    "(`calls_due`), found {} and {}",
                    place(), buckets_.size(), call_count_, stepped_, issued_));
  }
  optimizers::wait_all(works_);
  has_ended_ = true;
}

void AlgorithmRound::fail(std::string_view reason) noexcept {
  has_ended_ = true;
  optimizers::end_all(works_);
  try {
    optimizers::refuse_calls(context_, call_count_ - issued_, reason);
  } catch (const std::exception& error) {
    context_.log().error(fmt::format("{}: a call could not be refused: {}", place(), error.what()));
  }
}

}  // namespace bluefog::python
