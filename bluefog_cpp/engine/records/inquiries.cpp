#include "bluefog_cpp/engine/records/inquiries.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace bluefog {

void Inquiries::look() {
  using Clock = std::chrono::steady_clock;
  // A rank that is a little late answers by its message. Each thread that waits looks.
  constexpr std::chrono::milliseconds kPatience{200};
  const auto first = std::ranges::find_if(queue_, [](const QueuedCall& queued) {
    return queued.operation->partner() < 0 && queued.state().is_running();
  });
  if (first == queue_.end()) {
    return;
  }
  const CallState& call = first->state();
  const Clock::time_point now = Clock::now();
  if (call.index != call_ || call.moves != moves_) {
    call_ = call.index;
    moves_ = call.moves;
    since_ = now;
    has_asked_ = false;
  }
  if (has_asked_ || now - since_ < kPatience || first->operation->envelope_changes()) {
    return;
  }
  has_asked_ = true;
  const ControlMessage inquiry{.kind = ControlMessage::Kind::Inquiry,
                               .call = call.index,
                               .text = first->operation->envelope().describe()};
  for (const int rank : call.exchange.lacking_sources()) {
    peers_.route_to(rank)->send_control(rank, inquiry);
  }
}

void Inquiries::note_complete(const Operation& operation) {
  if (operation.envelope_changes()) {
    return;
  }
  const std::uint64_t call = CallState::of(operation).index;
  Past& past = past_[call % past_.size()];
  past.call = call;
  past.envelope = operation.envelope();
  std::ranges::copy(past.envelope.name, past.text.begin());
}

std::string Inquiries::past(std::uint64_t call) const {
  const Past& found = past_[call % past_.size()];
  if (found.call != call) {
    return {};
  }
  Envelope envelope = found.envelope;
  envelope.name = {found.text.data(), envelope.name.size()};
  return envelope.describe();
}

Inquiries::End Inquiries::hear(int source, ControlMessage report) {
  const CallKey key = CallKey::of(source, report.call);
  const bool is_inquiry = report.kind == ControlMessage::Kind::Inquiry;
  Operation* const operation = queue_.find(key);
  if (is_inquiry && operation == nullptr && !ledger_.is_over(key)) {
    kept_.emplace_back(source, std::move(report));
    return {};
  }
  if (operation == nullptr && ledger_.has_failed(key)) {
    return {};  // both sides saw it
  }
  if (is_inquiry && operation != nullptr && operation->envelope_changes()) {
    return {};
  }
  std::string both = std::move(report.text);
  if (is_inquiry) {
    const std::string own =
        operation == nullptr ? past(report.call) : operation->envelope().describe();
    if (own.empty() || own == both) {
      return {};  // its message is on the way
    }
    both = fmt::format("mismatched calls: rank {} called {}, rank {} called {}", source, both,
                       peers_.rank(), own);
    peers_.route_to(source)->send_control(
        source, {.kind = ControlMessage::Kind::Contradiction, .call = report.call, .text = both});
  }
  if (operation != nullptr) {
    return end_of(*operation, both);
  }
  ledger_.note_late_mismatch(key, std::move(both));
  return {};
}

Inquiries::End Inquiries::end_of(Operation& operation, const std::string& why) const {
  return {.operation = &operation,
          .error = fmt::format("rank {}, {}, {}: {}", peers_.rank(),
                               call_text(CallState::of(operation).index),
                               operation.envelope().describe(), why)};
}

Inquiries::End Inquiries::hear_kept(std::uint64_t call) {
  End end;
  for (auto& [source, inquiry] : std::exchange(kept_, {})) {
    if (inquiry.call > call) {
      kept_.emplace_back(source, std::move(inquiry));
    } else if (inquiry.call == call && end.operation == nullptr) {
      end = hear(source, std::move(inquiry));
    }
  }
  return end;
}

}  // namespace bluefog
