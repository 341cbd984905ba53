#include "bluefog_cpp/engine/letters.hpp"

#include <algorithm>

namespace bluefog {
namespace {

/// Whether `one` comes after `other` in a count that goes round.
bool is_later(std::uint32_t one, std::uint16_t other) noexcept {
  constexpr std::uint16_t kHalf = 0x8000;
  const auto ahead = static_cast<std::uint16_t>(static_cast<std::uint16_t>(one) - other);
  return ahead != 0 && ahead < kHalf;
}

}  // namespace

std::uint64_t Letters::take_number(int partner, Letter& letter) {
  Peer& peer = peers_[static_cast<std::size_t>(partner)];
  if (letter.is_received) {
    letter.sequence = ++peer.received_of_tag[letter.tag];
    peer.open.push_back(&letter);
    return kFirstMessageCall + kReceipt + ++peer.received;
  }
  letter.sequence = ++peer.sent_of_tag[letter.tag];
  return kFirstMessageCall + (rank_ > partner ? kFromHigherRank : 0) + ++peer.sent;
}

Letters::Found Letters::look_for(Transport& transport, int source, const Letter& receipt) {
  Peer& peer = peers_[static_cast<std::size_t>(source)];
  bool is_left_out = false;
  for (const Kept& kept : peer.kept) {
    if (fits(kept.header, receipt)) {
      if (!kept.is_whole) {
        break;
      }
      return {.state = State::Kept, .kept = &kept};
    }
    is_left_out |= kept.tag == receipt.tag && is_later(kept.header.id.step(), receipt.sequence);
  }
  while (const auto* const header = transport.arrived(source, Lane::Mail)) {
    if (!peer.kept.empty() && !peer.kept.back().is_whole) {
      if (!keep(transport, source, peer, *header)) {
        return {};
      }
      if (fits(peer.kept.back().header, receipt)) {
        return {.state = State::Kept, .kept = &peer.kept.back()};
      }
      continue;
    }
    if (fits(*header, receipt)) {
      return {.state = State::Next};
    }
    is_left_out |=
        header->envelope.name == receipt.tag && is_later(header->id.step(), receipt.sequence);
    if (std::ranges::any_of(peer.open, [&](const Letter* one) { return fits(*header, *one); })) {
      break;  // its receipt takes it
    }
    const auto given_up = std::ranges::find_if(peer.given_up, [&](const Address& address) {
      return address.second == header->id.step() && address.first == header->envelope.name;
    });
    if (given_up != peer.given_up.end()) {
      if (!take_off(transport, source, nullptr)) {
        return {};
      }
      peer.given_up.erase(given_up);
    } else if (!keep(transport, source, peer, *header)) {
      return {};
    }
  }
  return {.state = is_left_out ? State::LeftOut : State::NotHere};
}

bool Letters::keep(Transport& transport, int source, Peer& peer, const MessageHeader& header) {
  if (peer.kept.empty() || peer.kept.back().is_whole) {
    Kept& begun = peer.kept.emplace_back();
    begun.header = header;
    begun.tag = std::string(header.envelope.name);
    begun.header.envelope.name = begun.tag;
    begun.bytes.reserve(header.bytes);
  }
  return take_off(transport, source, &peer.kept.back());
}

bool Letters::take_off(Transport& transport, int source, Kept* kept) {
  while (true) {
    const auto here = transport.readable(source, Lane::Mail);
    if (here.empty()) {
      break;
    }
    if (kept != nullptr) {
      kept->bytes.insert(kept->bytes.end(), here.begin(), here.end());
    }
    transport.consume(source, Lane::Mail, here.size());
  }
  if (!transport.at_end(source, Lane::Mail)) {
    auto reason = transport.aborted(source, Lane::Mail);
    if (!reason) {
      return false;
    }
    if (kept != nullptr) {
      kept->abort_reason = std::move(reason);
    }
  }
  transport.finish(source, Lane::Mail);
  if (kept != nullptr) {
    kept->is_whole = true;
  }
  return true;
}

void Letters::close(int source, const Letter& receipt) {
  Peer& peer = peers_[static_cast<std::size_t>(source)];
  std::erase(peer.open, &receipt);
  peer.kept.remove_if(
      [&](const Kept& kept) { return kept.is_whole && fits(kept.header, receipt); });
}

void Letters::give_up(int source, const Letter& receipt) {
  Peer& peer = peers_[static_cast<std::size_t>(source)];
  const bool was_kept = std::ranges::any_of(
      peer.kept, [&](const Kept& kept) { return kept.is_whole && fits(kept.header, receipt); });
  close(source, receipt);
  if (!was_kept) {
    peer.given_up.emplace_back(receipt.tag, receipt.sequence);
  }
}

}  // namespace bluefog
