#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "bluefog_cpp/context.hpp"
#include "bluefog_cpp/error.hpp"

namespace bluefog::optimizers {

/// Tells the other ranks of errors of this one's algorithm that no call has told: those that come
/// after the last call of a round, or in a step without calls. The others hear of such an error in
/// their next round, whose calls are refused here at once, so that nobody waits; here that round is
/// an error too.
class LateErrors {
 public:
  /// @param context outlives this object. @param algorithm for messages.
  LateErrors(Context& context, std::string algorithm)
      : context_(context), algorithm_(std::move(algorithm)) {}

  /// A step, or another method of the algorithm, begins.
  void begin();
  /// The exception under way has left `method`. If no call since `begin` tells the others, refuses
  /// the `calls` of the next round. Errors that came from other ranks are theirs to tell.
  void note(std::string_view method, std::size_t calls) noexcept;

  /// Whether the calls of the next round have been refused.
  [[nodiscard]] bool is_pending() const noexcept { return !reason_.empty(); }
  /// The error of this rank's part in that round.
  [[nodiscard]] StateError error_of(std::int64_t round) const;
  /// Notes that the round is over.
  void forget() noexcept { reason_.clear(); }

 private:
  [[nodiscard]] std::string text_of(std::string_view method) const;
  /// Whether a call since `begin` has failed here or was refused.
  [[nodiscard]] bool has_failed_call() const;

  Context& context_;
  std::string algorithm_;
  /// The first call since `begin`.
  std::uint64_t first_call_ = 0;
  std::string reason_;
};

}  // namespace bluefog::optimizers
