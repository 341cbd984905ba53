#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "bluefog_cpp/deadline.hpp"
#include "bluefog_cpp/engine/context_family.hpp"
#include "bluefog_cpp/engine/engine.hpp"
#include "bluefog_cpp/error.hpp"

namespace bluefog {

/// The rank for which calls have been revoked, if they have: it was waited for until the timeout, has
/// ended, or is the first that wants another group.
inline std::optional<int> lost_rank(Engine& engine) {
  try {
    engine.check_revoked("shrink");
    return std::nullopt;
  } catch (const RankLostError& error) {
    return error.rank();
  }
}

/// The calls of a family whose ranks meet to go on as another group. Any thread.
class LastCalls {
 public:
  /// @param why they end. @param patience until then, where no rank is lost: a call of all ranks may
  ///   have ended here and not yet on the others.
  LastCalls(std::shared_ptr<ContextFamily> family, std::string why,
            std::chrono::nanoseconds patience)
      : family_(std::move(family)), why_(std::move(why)), until_(Deadline::after(patience)) {
    if (family_->is_revoked()) {
      end();
    }
  }

  void end() {
    if (!have_ended_.exchange(true)) {
      family_->revoke(why_);
    }
  }
  /// Ends them where they will not end by themselves.
  void look(bool is_rank_lost) {
    if (is_rank_lost || until_.expired()) {
      end();
    }
  }

 private:
  std::shared_ptr<ContextFamily> family_;
  std::string why_;
  Deadline until_;
  std::atomic<bool> have_ended_{false};
};

}  // namespace bluefog
