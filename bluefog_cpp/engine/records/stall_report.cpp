#include "bluefog_cpp/engine/records/stall_report.hpp"

#include <fmt/format.h>

#include <string_view>
#include <utility>
#include <vector>

#include "bluefog_cpp/error.hpp"

namespace bluefog {
namespace {

double seconds(std::chrono::milliseconds time) {
  return static_cast<double>(time.count()) / 1000.0;
}

/// "call 5, barrier".
std::string name_of_call(const Operation& operation) {
  return fmt::format("{}, {}", call_text(CallState::of(operation).index),
                     operation.envelope().describe());
}

}  // namespace

StallReport::StallReport(const Peers& peers, const CallQueue& queue, const Engine& engine,
                         std::shared_ptr<ContextFamily> family)
    : peers_(peers), queue_(queue), engine_(engine), family_(std::move(family)) {}

std::string StallReport::warning(const Operation& operation,
                                 std::chrono::milliseconds waited) const {
  return fmt::format("{}, has been waiting for {:.1f} s: {}", name_of_call(operation),
                     seconds(waited), awaited_text(operation));
}

std::exception_ptr StallReport::timeout_error(const Operation& operation,
                                              const WaitPolicy& policy) const {
  std::string text = fmt::format("rank {}, {}: nothing moved for {:.1f} s ({}): {}", peers_.rank(),
                                 name_of_call(operation), seconds(policy.timeout),
                                 policy.timeout_name, awaited_text(operation));
  if (operation.partner() < 0 && policy.timeout_name == WaitPolicy().timeout_name) {
    const bool is_copy = family_ && !family_->is_first(engine_);
    text += fmt::format(
        "; if ranks are a call apart now, {}",
        is_copy
            ? "resync() does not reach this context, a copy as each distributed optimizer has one: "
              "make the optimizer anew on all of them"
            : "resync() on all of them brings them together");
  }
  return std::make_exception_ptr(TimeoutError(text));
}

std::exception_ptr StallReport::death_error(const Operation& operation, int rank,
                                            const std::string& cause_of_death) const {
  return std::make_exception_ptr(PeerFailure(
      rank, fmt::format("rank {}, {}: waited for rank {}, but {}{}", peers_.rank(),
                        name_of_call(operation), rank, cause_of_death, ahead_elsewhere(rank))));
}

std::string StallReport::ahead_elsewhere(int rank) const {
  return family_ ? family_->ahead_elsewhere(rank, engine_) : std::string();
}

std::string StallReport::awaited_text(const Operation& operation) const {
  // A call may stand behind earlier ones: what they wait for is what counts.
  const Operation& blocking = queue_.blocking(operation);
  const CallState& call = CallState::of(blocking);
  std::string text;
  if (&blocking != &operation) {
    text = fmt::format("behind {}, ", name_of_call(blocking));
  }
  if (call.is_staged && call.is_queued()) {
    text += "the device has not given its values";
  }
  const auto add = [&](std::string_view role, const AwaitedRanks& ranks) {
    for (const int rank : ranks) {
      text +=
          fmt::format("{}{} rank {} ({}{})", text.empty() || text.ends_with(", ") ? "" : "; ", role,
                      rank, peers_.route_to(rank)->last_seen(rank), ahead_elsewhere(rank));
    }
  };
  add("no message from", call.exchange.awaited_sources());
  add("not taken by", call.exchange.awaited_readers());
  return text;
}

}  // namespace bluefog
