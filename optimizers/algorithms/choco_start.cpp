// The beginning of copies.
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <string>
#include <vector>

#include "ops/calls/allgather_parts.hpp"
#include "optimizers/algorithms/choco.hpp"
#include "optimizers/algorithms/codes/coded_values.hpp"
#include "optimizers/buckets/flat_state.hpp"

namespace bluefog::optimizers {
namespace {

/// How far a rank is with its model of the beginning.
enum class StartPhase : std::int64_t { Unknown, Kept, Compared };

bool is_in(StartPhase phase, const at::Tensor& start) {
  return start[0].item<std::int64_t>() == static_cast<std::int64_t>(phase);
}

}  // namespace

std::size_t Choco::calls_due() const {
  return buckets_.size() + decoding_calls(*compression_) + (has_compared_ ? 0 : 1);
}

void Choco::keep_start_once() {
  if (has_compared_ || !is_in(StartPhase::Unknown, start_)) {
    return;
  }
  std::uint64_t number = 0;
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    number = number_of_values(buckets_[b], buckets_[b].flat(), number);
    for (const Links& links : links_) {
      links.own.values[b].copy_(buckets_[b].flat());
    }
  }
  start_[0].fill_(static_cast<std::int64_t>(StartPhase::Kept));
  start_[1].fill_(static_cast<std::int64_t>(number));
}

void Choco::compare_start() {
  const bool is_kept = is_in(StartPhase::Kept, start_);
  const std::string own =
      is_kept ? fmt::format("{:016x}", start_[1].item<std::int64_t>()) : std::string("none");
  pass_over_start();  // counted, also where it fails on this rank alone
  const std::vector<std::string> all = ops::allgather_parts(context_, "choco, start", own);
  // Copies of a start that is not kept are what a checkpoint had.
  if (!is_kept || !std::ranges::all_of(all, [&](const std::string& one) { return one == own; })) {
    return;
  }
  for (const Links& links : links_) {
    // Not 0, which says that nothing is known.
    const std::int64_t identity = start_[1].item<std::int64_t>() | 1;
    links.own.identity.fill_(identity);
    for (const Copies& theirs : links.sources) {
      theirs.identity.fill_(identity);
      for (std::size_t b = 0; b < buckets_.size(); ++b) {
        theirs.values[b].copy_(links.own.values[b]);
      }
    }
  }
}

void Choco::pass_over_start() {
  has_compared_ = true;
  start_[0].fill_(static_cast<std::int64_t>(StartPhase::Compared));
}

void Choco::forget_round() {
  if (is_round_next_ && !has_compared_) {
    pass_over_start();
  }
}

void Choco::step_alone(const StepBucket& step_bucket) {
  keep_start_once();
  Algorithm::step_alone(step_bucket);
}

void Choco::forget(const Copies& copies) {
  zero(copies.values);
  copies.identity.zero_();
}

}  // namespace bluefog::optimizers
