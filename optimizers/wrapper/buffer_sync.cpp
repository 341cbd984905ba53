#include "optimizers/wrapper/buffer_sync.hpp"

#include <algorithm>
#include <utility>

#include "optimizers/parameter_collectives.hpp"

namespace bluefog::optimizers {

std::string_view name_of(BufferPolicy policy) {
  switch (policy) {
    case BufferPolicy::Local:
      return "local";
    case BufferPolicy::AverageOnFinish:
      return "average_on_finish";
    case BufferPolicy::AverageEveryRound:
      return "average_every_round";
    case BufferPolicy::BroadcastFromRankZero:
      return "broadcast_from_rank_zero";
  }
  return "unknown";
}

BufferSync::BufferSync(Context& context, NamedTensors buffers, BufferPolicy policy)
    : context_(context), buffers_(without_repeats(std::move(buffers))), policy_(policy) {}

std::size_t BufferSync::calls_due() const {
  switch (policy_) {
    case BufferPolicy::Local:
    case BufferPolicy::AverageOnFinish:
      break;
    case BufferPolicy::AverageEveryRound:
      return static_cast<std::size_t>(std::ranges::count_if(
          buffers_, [](const NamedTensor& item) { return why_not_averaged(item.tensor).empty(); }));
    case BufferPolicy::BroadcastFromRankZero:
      return buffers_.size();
  }
  return 0;
}

void BufferSync::after_round() {
  switch (policy_) {
    case BufferPolicy::Local:
    case BufferPolicy::AverageOnFinish:
      break;
    case BufferPolicy::AverageEveryRound:
      average_floating(context_, buffers_);
      break;
    case BufferPolicy::BroadcastFromRankZero:
      broadcast(context_, buffers_, 0);
      break;
  }
}

void BufferSync::at_finish() {
  if (policy_ == BufferPolicy::AverageOnFinish) {
    average_floating(context_, buffers_);
  } else {
    after_round();
  }
}

}  // namespace bluefog::optimizers
