#include "optimizers/buffer_sync.hpp"

#include <utility>

#include "optimizers/parameter_collectives.hpp"

namespace bluefog::optimizers {

BufferSync::BufferSync(Context& context, NamedTensors buffers, BufferPolicy policy)
    : context_(context), buffers_(without_repeats(std::move(buffers))), policy_(policy) {}

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
