#include "optimizers/wrapper/steps/late_errors.hpp"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <exception>
#include <utility>

#include "bluefog_cpp/context/context_core.hpp"
#include "bluefog_cpp/error.hpp"
#include "optimizers/round_calls.hpp"

namespace bluefog::optimizers {

void LateErrors::begin() {
  Engine& engine = context_.core().engine();
  engine.run_exclusively([&] { first_call_ = engine.ledger().next_call(); });
}

bool LateErrors::has_failed_call() const {
  Engine& engine = context_.core().engine();
  bool has_failed = false;
  engine.run_exclusively([&] { has_failed = engine.ledger().has_failed_since(first_call_); });
  return has_failed;
}

// Errors of the library name rank and algorithm themselves. Empty for those of other ranks, and of
// calls.
std::string LateErrors::text_of(std::string_view method) const {
  const auto placed = [&](std::string_view text) {
    return fmt::format("rank {}, {}, {}: {}", context_.rank(), algorithm_, method, text);
  };
  try {
    throw;
  } catch (const PeerFailure&) {
    return {};
  } catch (const MismatchError&) {
    return {};
  } catch (const TimeoutError&) {
    return {};
  } catch (const TransportError&) {
    return {};
  } catch (const Error& error) {
    return fmt::format("{} ({})", error.what(), method);
  } catch (const c10::Error& error) {
    return placed(error.what_without_backtrace());
  } catch (const std::exception& error) {
    return placed(error.what());
  } catch (...) {
    return placed("an exception of an unknown type");
  }
}

void LateErrors::note(std::string_view method, std::size_t calls) noexcept {
  try {
    std::string reason = text_of(method);
    if (is_pending() || calls == 0 || reason.empty() || has_failed_call()) {
      return;
    }
    refuse_calls(context_, calls,
                 fmt::format("{} (after its last call before this round)", reason));
    reason_ = std::move(reason);
  } catch (const std::exception& error) {
    context_.log().error(fmt::format("rank {}, {}: a call could not be refused: {}",
                                     context_.rank(), algorithm_, error.what()));
  }
}

StateError LateErrors::error_of(std::int64_t round) const {
  return StateError(
      fmt::format("rank {}, {}, round {}: expected no error since the round before, found one of "
                  "which the other ranks hear in this round, which fails with it: {}",
                  context_.rank(), algorithm_, round, reason_));
}

}  // namespace bluefog::optimizers
