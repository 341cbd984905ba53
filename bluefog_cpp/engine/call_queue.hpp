#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "bluefog_cpp/engine/call_key.hpp"
#include "bluefog_cpp/engine/operation.hpp"

namespace bluefog {

/// A call under way.
struct QueuedCall {
  Operation* operation = nullptr;
  /// Null for calls that live on their caller's stack.
  std::shared_ptr<Operation> owner{};

  [[nodiscard]] CallState& state() const noexcept { return CallState::of(*operation); }
  /// Nobody holds its `Work` any more.
  [[nodiscard]] bool is_dropped() const noexcept { return owner && owner.use_count() == 1; }
};

/// The calls under way in the order of their submission, and the rights that each has before the
/// others.
///
/// Used under the engine's mutex.
class CallQueue {
 public:
  [[nodiscard]] static CallKey key_of(const Operation& operation) noexcept {
    return {.call = CallState::of(operation).index, .partner = operation.partner()};
  }

  /// `add` then needs no memory.
  void reserve_one() {
    if (calls_.size() == calls_.capacity()) {
      calls_.reserve(2 * calls_.size() + 1);
    }
  }
  void add(Operation& operation, std::shared_ptr<Operation> owner) {
    calls_.push_back({&operation, std::move(owner)});
  }
  void remove_finished() {
    std::erase_if(calls_, [](const QueuedCall& call) { return call.state().is_done(); });
  }
  void clear() noexcept { calls_.clear(); }

  [[nodiscard]] bool empty() const noexcept { return calls_.empty(); }
  [[nodiscard]] auto begin() const noexcept { return calls_.begin(); }
  [[nodiscard]] auto end() const noexcept { return calls_.end(); }

  /// The call of that key if it has not ended, else null.
  [[nodiscard]] Operation* find(CallKey key) const noexcept;

  /// The earliest call of all ranks that has not ended, `next_call` where all have.
  [[nodiscard]] std::uint64_t first_under_way(std::uint64_t next_call) const noexcept {
    for (const QueuedCall& call : calls_) {
      if (call.operation->partner() < 0 && !call.state().is_done()) {
        return call.state().index;
      }
    }
    return next_call;
  }

  /// Whether somebody waits for `call`, or for a later one whose messages come after its own, or
  /// nobody ever will.
  [[nodiscard]] bool is_waited_for(const QueuedCall& call) const {
    return call.state().waiters > 0 || call.is_dropped() || holds_up_waited_for(call);
  }

  /// Whether all earlier calls with the partner of `operation`, mail apart from others, have sent
  /// everything.
  [[nodiscard]] bool earlier_have_published(const Operation& operation) const;

  /// Changes whenever `operation`, or one of the same ranks before it, has come nearer to its end.
  /// Reports of other ranks are no progress, and neither are calls with one of them alone.
  [[nodiscard]] std::uint64_t progress_of(const Operation& operation) const noexcept;

  /// The earliest running call of the same ranks, behind which `operation` stands; itself if none
  /// is.
  [[nodiscard]] const Operation& blocking(const Operation& operation) const noexcept;

  /// Whether a call gets on only if somebody drives it: not done, and not at rest until waited for.
  [[nodiscard]] bool has_work() const;
  /// Whether a call waits for its device.
  [[nodiscard]] bool has_staged() const;

 private:
  /// Whether the two are made in order: calls of all ranks, or those with one partner. Receipts are
  /// in no order.
  [[nodiscard]] static bool are_in_order(const Operation& one, const Operation& other) noexcept;
  [[nodiscard]] bool holds_up_waited_for(const QueuedCall& call) const;

  std::vector<QueuedCall> calls_;
};

}  // namespace bluefog
