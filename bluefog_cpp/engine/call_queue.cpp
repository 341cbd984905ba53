#include "bluefog_cpp/engine/call_queue.hpp"

#include "bluefog_cpp/engine/letters.hpp"

namespace bluefog {

Operation* CallQueue::find(CallKey key) const noexcept {
  const auto it = std::ranges::find_if(calls_, [key](const QueuedCall& call) {
    return key_of(*call.operation) == key && !call.state().is_done();
  });
  return it == calls_.end() ? nullptr : it->operation;
}

// Messages of a lane are taken in their order: a resting call would hold up those after it.
bool CallQueue::holds_up_waited_for(const QueuedCall& call) const {
  const auto holds_messages = [](const QueuedCall& queued) {
    return queued.state().consumption == Consumption::OnWait &&
           queued.state().exchange.expects_messages();
  };
  if (!holds_messages(call)) {
    return false;
  }
  const auto own = std::ranges::find(calls_, call.operation, &QueuedCall::operation);
  return std::any_of(own, calls_.end(), [&](const QueuedCall& later) {
    return holds_messages(later) && (later.state().waiters > 0 || later.is_dropped()) &&
           !later.state().is_done();
  });
}

bool CallQueue::are_in_order(const Operation& one, const Operation& other) noexcept {
  if (one.partner() != other.partner()) {
    return false;
  }
  if (one.partner() < 0 || &one == &other) {
    return true;
  }
  const Letter* const letter = one.letter();
  const Letter* const other_letter = other.letter();
  if (letter == nullptr || other_letter == nullptr) {
    return letter == other_letter;
  }
  return !letter->is_received && !other_letter->is_received;
}

bool CallQueue::earlier_have_published(const Operation& operation) const {
  bool have_published = true;
  for (const QueuedCall& earlier : calls_) {
    if (!are_in_order(*earlier.operation, operation) || earlier.state().is_done()) {
      continue;
    }
    if (earlier.operation == &operation) {
      break;
    }
    have_published &= earlier.state().last && earlier.state().exchange.published();
  }
  return have_published;
}

std::uint64_t CallQueue::progress_of(const Operation& operation) const noexcept {
  std::uint64_t progress = 0;
  for (const QueuedCall& call : calls_) {
    if (!are_in_order(*call.operation, operation)) {
      continue;
    }
    progress += 1 + call.state().moves;  // changes also when an earlier call ends
    if (call.operation == &operation) {
      break;
    }
  }
  return progress;
}

const Operation& CallQueue::blocking(const Operation& operation) const noexcept {
  const auto it = std::ranges::find_if(calls_, [&](const QueuedCall& call) {
    return are_in_order(*call.operation, operation) && call.state().is_running();
  });
  return it == calls_.end() ? operation : *it->operation;
}

bool CallQueue::has_work() const {
  return std::ranges::any_of(calls_, [](const QueuedCall& call) {
    const CallState& state = call.state();
    const bool rests = state.consumption == Consumption::OnWait && state.waiters == 0 &&
                       state.last && state.exchange.published() && state.exchange.has_come() &&
                       !call.is_dropped();
    return !state.is_done() && !rests;
  });
}

bool CallQueue::has_staged() const {
  return std::ranges::any_of(calls_, [](const QueuedCall& call) {
    return call.state().is_staged && !call.state().is_done();
  });
}

}  // namespace bluefog
