#include "bluefog_cpp/engine/call_ledger.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace bluefog {

CallLedger::CallLedger(Peers& peers, const CallQueue& queue)
    : peers_(peers),
      queue_(queue),
      letters_(peers.rank(), peers.size()),
      pair_calls_(static_cast<std::size_t>(peers.size())),
      first_common_pair_calls_(pair_calls_.size()),
      refusals_(pair_calls_.size()),
      unneeded_offers_(pair_calls_.size()) {}

std::uint64_t CallLedger::take_number(int partner) {
  return partner < 0 ? next_call_++
                     : kFirstPairCall + ++pair_calls_[static_cast<std::size_t>(partner)];
}

bool CallLedger::is_over(CallKey key) const noexcept {
  if (is_message_call(key.call)) {
    return queue_.find(key) == nullptr;
  }
  const std::uint64_t next =
      key.partner < 0 ? next_call_
                      : kFirstPairCall + 1 + pair_calls_[static_cast<std::size_t>(key.partner)];
  return key.call < next && queue_.find(key) == nullptr;
}

void CallLedger::go_on_from(std::uint64_t next_call, std::vector<std::uint64_t> pair_calls) {
  note_failed({.call = next_call - 1});  // messages of earlier calls are looked for
  next_call_ = next_call;
  first_common_call_ = next_call;
  pair_calls_ = std::move(pair_calls);
  first_common_pair_calls_ = pair_calls_;
  late_mismatch_.clear();
}

void CallLedger::note_failed(CallKey key) {
  if (failed_calls_.size() < Transport::kMostWaitingControls) {
    failed_calls_.push_back(key);
  } else {
    failed_calls_[replaced_++ % failed_calls_.size()] = key;
  }
}

bool CallLedger::has_failed_since(std::uint64_t first_call) const noexcept {
  return std::ranges::any_of(
      failed_calls_, [&](const CallKey& key) { return key.partner < 0 && key.call >= first_call; });
}

bool CallLedger::has_failed(CallKey key) const noexcept {
  const auto is_before_resync = [&] {
    if (key.partner < 0) {
      return key.call < first_common_call_;
    }
    const std::uint64_t pairs = first_common_pair_calls_[static_cast<std::size_t>(key.partner)];
    return pairs > 0 && key.call <= kFirstPairCall + pairs;
  };
  return is_before_resync() || std::ranges::find(failed_calls_, key) != failed_calls_.end();
}

std::array<std::uint64_t, CallLedger::kKeptCalls> CallLedger::failed_without_change()
    const noexcept {
  std::array<std::uint64_t, kKeptCalls> found{};
  std::size_t next = replaced_;  // the oldest one's place
  std::size_t count = 0;
  for (std::size_t i = 0; i < failed_calls_.size(); ++i, ++next) {
    const CallKey& key = failed_calls_[next % failed_calls_.size()];
    if (key.partner < 0 && key.call >= first_common_call_ &&
        std::ranges::find(changes_, key.call, &Change::call) == changes_.end()) {
      found[count++ % found.size()] = key.call;
    }
  }
  return found;
}

void CallLedger::note_refusal(int rank, ControlMessage report) {
  has_abandoned_ = has_abandoned_ || report.kind == ControlMessage::Kind::Abandoned;
  auto& of_rank = refusals_[static_cast<std::size_t>(rank)];
  std::erase_if(of_rank, [this, rank](const Refusal& refusal) {
    return is_over(CallKey::of(rank, refusal.call));
  });
  if (!is_over(CallKey::of(rank, report.call))) {
    of_rank.push_back({report.call, report.kind, std::move(report.text)});
  }
  knows_of_abandonment_ = std::ranges::any_of(refusals_, [](const auto& of_peer) {
    return std::ranges::find(of_peer, ControlMessage::Kind::Abandoned, &Refusal::kind) !=
           of_peer.end();
  });
}

const CallLedger::Refusal* CallLedger::find_refusal(int rank, std::uint64_t call) const {
  const auto& of_rank = refusals_[static_cast<std::size_t>(rank)];
  const auto it = std::ranges::find(of_rank, call, &Refusal::call);
  return it == of_rank.end() ? nullptr : &*it;
}

void CallLedger::note_late_mismatch(CallKey key, std::string text) {
  if (key != last_late_call_) {
    last_late_call_ = key;
    late_mismatch_ = std::move(text);
  }
}

void CallLedger::forget_late_mismatch(CallKey key) {
  if (last_late_call_ == key) {
    late_mismatch_.clear();
  }
}

const std::string* CallLedger::refusal(int rank, std::uint64_t call) const {
  const Refusal* const found = find_refusal(rank, call);
  return found == nullptr ? nullptr : &found->reason;
}

const std::string* CallLedger::abandonment(int rank, std::uint64_t call) const {
  const Refusal* const found = find_refusal(rank, call);
  return found == nullptr || found->kind != ControlMessage::Kind::Abandoned ? nullptr
                                                                            : &found->reason;
}

bool CallLedger::is_under_way(int rank, std::uint64_t call) const {
  return queue_.find(CallKey::of(rank, call)) != nullptr;
}

void CallLedger::report_unexpected(int rank, std::uint64_t call, const std::string& text) {
  const CallKey key = CallKey::of(rank, call);
  if (has_failed(key)) {
    return;  // its sender got a report then
  }
  const std::string both = fmt::format(
      "rank {} sent a message in {}, {}, that rank {} did not expect: senders and receivers "
      "of that call do not match",
      rank, call_text(call), text, peers_.rank());
  peers_.route_to(rank)->send_control(
      rank, {.kind = ControlMessage::Kind::Rejection, .call = call, .text = both});
  note_late_mismatch(key, both);
}

}  // namespace bluefog
