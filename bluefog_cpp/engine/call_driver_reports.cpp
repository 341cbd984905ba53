// What the driver of calls makes of other ranks' reports.
#include <fmt/format.h>

#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "bluefog_cpp/engine/call_driver.hpp"

namespace bluefog {

bool CallDriver::receive_reports() {
  return parts_.peers.receive_reports(
      [this](int source, ControlMessage report) { receive(source, std::move(report)); });
}

void CallDriver::receive(int source, ControlMessage report) {
  if (report.kind == ControlMessage::Kind::Rejection) {
    receive_rejection(source, report);
  } else if (report.kind == ControlMessage::Kind::Deadlock) {
    receive_deadlock(source, report);
  } else if (report.kind == ControlMessage::Kind::Revocation) {
    parts_.revocation.hear({.lost = static_cast<int>(report.call), .text = std::move(report.text)});
    end_revoked_calls();
  } else if (parts_.step_news.hear(source, report)) {
    return;
  } else if (Inquiries::is_about(report.kind)) {
    fail_contradicted(inquiries_.hear(source, std::move(report)));
  } else {
    receive_refusal(source, std::move(report));
  }
}

void CallDriver::receive_refusal(int source, ControlMessage report) {
  if (progress_hook_) {
    progress_hook_->note_failure(source, report.call, report.text,
                                 parts_.ledger.is_over(CallKey::of(source, report.call)));
  }
  parts_.ledger.note_refusal(source, std::move(report));
}

void CallDriver::receive_rejection(int source, const ControlMessage& report) {
  const CallKey key = CallKey::of(source, report.call);
  if (parts_.ledger.has_failed(key) || revoke(parts_.step_news.given_up.reason_of(source))) {
    return;  // both sides saw it
  }
  std::string text = fmt::format("rank {}, {}: rank {} did not accept this rank's message: {}",
                                 parts_.peers.rank(), call_text(report.call), source, report.text);
  if (Operation* const operation = parts_.queue.find(key)) {
    fail(*operation, std::make_exception_ptr(MismatchError(text)));
  } else {
    parts_.ledger.note_late_mismatch(key, std::move(text));
  }
}

void CallDriver::receive_deadlock(int source, const ControlMessage& report) {
  if (Operation* const operation = parts_.queue.find(CallKey::of(source, report.call))) {
    fail(*operation,
         std::make_exception_ptr(MismatchError(
             fmt::format("rank {}, {}: rank {} cannot come to it: {}", parts_.peers.rank(),
                         call_text(report.call), source, report.text))),
         ControlMessage::Kind::Abandoned);
  }
}

bool CallDriver::revoke(std::optional<Revocation::Reason> reason) {
  if (reason) {
    parts_.revocation.begin(std::move(*reason));
    end_revoked_calls();
  }
  return reason.has_value();
}

void CallDriver::end_revoked_calls() {
  for (const QueuedCall& queued : parts_.queue) {
    if (CallState& call = queued.state(); !call.is_done()) {
      call.peers_know = true;
      fail(*queued.operation,
           parts_.revocation.error(fmt::format("{}, {}", call_text(call.index),
                                               queued.operation->envelope().describe())));
    }
  }
}

bool CallDriver::look_for_losses() {
  revoke(parts_.revocation.by_the_dead());
  return parts_.revocation.is_known();
}

bool CallDriver::give_up_the_late(const Operation& operation, const std::string& why) {
  return revoke(parts_.revocation.by_the_late(CallState::of(operation).exchange, why));
}

}  // namespace bluefog
