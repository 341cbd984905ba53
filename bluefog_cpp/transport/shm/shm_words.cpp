// The messages between ranks of a host beside the streams of data.
#include <fmt/format.h>

#include <utility>

#include "bluefog_cpp/error.hpp"
#include "bluefog_cpp/transport/shm/shared_text.hpp"
#include "bluefog_cpp/transport/shm/shm_transport.hpp"

namespace bluefog::shm {
namespace {

// Words of a rank's status: a number of a call, and a kind or one more than a rank behind it.
constexpr unsigned kKindBits = 8;
constexpr std::uint64_t kKindMask = (std::uint64_t{1} << kKindBits) - 1;
constexpr unsigned kRankBits = 16;
constexpr std::uint64_t kRankMask = (std::uint64_t{1} << kRankBits) - 1;

}  // namespace

void ShmTransport::send_control(int rank, const ControlMessage& message) {
  const std::size_t index = index_of(rank);
  PeerState& state = states_[index];
  if (state.is_gone || (state.waiting_words.empty() && send_word(index, message)) ||
      state.waiting_words.size() >= kMostWaitingWords) {
    return;
  }
  state.waiting_words.push_back(message);
  ++waiting_words_;
}

bool ShmTransport::send_word(std::size_t index, const ControlMessage& message) {
  PeerState& state = states_[index];
  if (state.words_out == nullptr) {
    try {
      state.words_out = group_->make<ControlStream>(group_->link(own_, index).control);
    } catch (const TransportError&) {
      return false;  // the word waits: no caller of a call that ends can do anything about it
    }
  }
  ControlStream& stream = *state.words_out;
  if (state.control_written - stream.consumed.load(std::memory_order_acquire) >= kControlEntries) {
    return false;
  }
  ControlEntry& entry = stream.entries[state.control_written % kControlEntries];
  entry.kind = message.kind;
  entry.call = message.call;
  copy_text(entry.text, message.text);
  entry.turn.store(turn_of(state.control_written, kControlEntries), std::memory_order_release);
  ++state.control_written;
  head(index).control_bell.fetch_add(1, std::memory_order_seq_cst);
  head(index).doorbell.ring();
  return true;
}

bool ShmTransport::send_waiting_words() {
  bool moved = false;
  for (std::size_t i = 0; i < states_.size(); ++i) {
    PeerState& state = states_[i];
    if (state.is_gone) {
      drop_waiting_words(state);
    }
    while (!state.waiting_words.empty() && send_word(i, state.waiting_words.front())) {
      state.waiting_words.pop_front();
      --waiting_words_;
      moved = true;
    }
  }
  return moved;
}

void ShmTransport::drop_waiting_words(PeerState& state) noexcept {
  waiting_words_ -= state.waiting_words.size();
  state.waiting_words.clear();
}

std::optional<std::pair<int, ControlMessage>> ShmTransport::poll_control() {
  if (head(own_).control_bell.load(std::memory_order_seq_cst) == control_heard_) {
    return std::nullopt;
  }
  return next_control();
}

std::optional<std::pair<int, ControlMessage>> ShmTransport::next_control() {
  for (std::size_t i = 0; i < states_.size(); ++i) {
    PeerState& state = states_[i];
    if (state.words_in == nullptr) {
      state.words_in = group_->find<ControlStream>(i, group_->link(i, own_).control);
      if (state.words_in == nullptr) {
        continue;
      }
    }
    ControlStream& stream = *state.words_in;
    const ControlEntry& entry = stream.entries[state.control_read % kControlEntries];
    if (entry.turn.load(std::memory_order_acquire) ==
        turn_of(state.control_read, kControlEntries)) {
      ControlMessage message{
          .kind = entry.kind, .call = entry.call, .text = std::string(text_of(entry.text))};
      ++state.control_read;
      ++control_heard_;
      stream.consumed.store(state.control_read, std::memory_order_release);
      head(i).doorbell.ring();  // its writer may wait for room
      return std::pair{rank_at(i), std::move(message)};
    }
  }
  return std::nullopt;
}

std::optional<std::string> ShmTransport::cause_of_death(int rank) {
  const std::size_t index = index_of(rank);
  if (has_left(rank)) {
    states_[index].is_gone = true;
    return fmt::format("that rank has closed its context ({})", last_seen(rank));
  }
  if (has_died(rank)) {
    states_[index].is_gone = true;
    return fmt::format("that rank's process has ended ({})", last_seen(rank));
  }
  return std::nullopt;
}

bool ShmTransport::has_left(int rank) {
  return head(index_of(rank)).status.has_left.load(std::memory_order_seq_cst);
}

bool ShmTransport::has_died(int rank) {
  return group_->has_ended(index_of(rank)) && !has_left(rank);
}

Transport::SeenCall ShmTransport::last_call(int rank) const {
  const std::uint64_t begun = head(index_of(rank)).status.begun.load(std::memory_order_acquire);
  return {.call = begun >> kKindBits, .kind = static_cast<OpKind>(begun & kKindMask)};
}

std::string ShmTransport::last_seen(int rank) const {
  const auto [call, kind] = last_call(rank);
  return call == 0 ? "it has made no call yet"
                   : fmt::format("last seen in {}, {}", call_text(call), bluefog::name_of(kind));
}

void ShmTransport::note_call(CallId id, OpKind kind) {
  const auto bits = static_cast<std::uint64_t>(kind);
  head(own_).status.begun.store(id.call() << kKindBits | bits, std::memory_order_release);
}

std::optional<Transport::Standing> ShmTransport::standing_of(int rank) const {
  const Status& status = head(index_of(rank)).status;
  Standing standing;
  const std::uint64_t wait = status.wait.load(std::memory_order_acquire);
  standing.wait = {.call = wait >> kRankBits, .rank = static_cast<int>(wait & kRankMask) - 1};
  standing.first_under_way = status.first_under_way.load(std::memory_order_acquire);
  standing.begun = last_call(rank);
  return standing;
}

void ShmTransport::note_end(std::uint64_t first_under_way) noexcept {
  head(own_).status.first_under_way.store(first_under_way, std::memory_order_release);
}

void ShmTransport::note_wait(Wait wait) noexcept {
  const auto rank = static_cast<std::uint64_t>(wait.rank + 1);
  const bool fits = rank <= kRankMask && !is_pair_call(wait.call);
  head(own_).status.wait.store(fits ? wait.call << kRankBits | rank : 0, std::memory_order_release);
}

}  // namespace bluefog::shm
