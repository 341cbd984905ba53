#include "tools/bfrun/elastic/slots.hpp"

#include <algorithm>

namespace bluefog::bfrun {

std::vector<int> Slots::take_leaving() {
  std::vector<int> leaving;
  for (auto next = seats_.begin(); next != seats_.end();) {
    auto& [rank, seat] = *next;
    const bool has_vanished = !is_there(seat.slot);
    if (has_vanished && seat.state == State::Spoilt) {
      next = seats_.erase(next);
      continue;
    }
    if (has_vanished && seat.state == State::Used) {
      seat.state = State::Leaving;
      leaving.push_back(rank);
    }
    ++next;
  }
  return leaving;
}

std::vector<Slots::NewRank> Slots::fill(int most_now) {
  std::vector<NewRank> filled;
  for (const HostSlots& host : hosts_) {
    for (int index = 0; index < host.slots && occupied() < most_now; ++index) {
      const Slot slot{.host = host.name, .index = index};
      if (is_free(slot)) {
        const int rank = lowest_free_number();
        seats_[rank] = {.slot = slot};
        filled.push_back({.rank = rank, .slot = slot});
      }
    }
  }
  return filled;
}

void Slots::spoil(int rank) {
  if (const auto found = seats_.find(rank); found != seats_.end()) {
    found->second.state = State::Spoilt;
  }
}

int Slots::slots_of(const std::string& host) const {
  const auto found = std::ranges::find(hosts_, host, &HostSlots::name);
  return found == hosts_.end() ? 0 : found->slots;
}

int Slots::total() const {
  int sum = 0;
  for (const HostSlots& host : hosts_) {
    sum += host.slots;
  }
  return sum;
}

bool Slots::is_there(const Slot& slot) const { return slot.index < slots_of(slot.host); }

bool Slots::is_free(const Slot& slot) const {
  return std::ranges::none_of(seats_, [&](const auto& seat) { return seat.second.slot == slot; });
}

int Slots::occupied() const {
  return static_cast<int>(std::ranges::count_if(
      seats_, [](const auto& seat) { return seat.second.state != State::Spoilt; }));
}

int Slots::lowest_free_number() const {
  int number = 0;
  while (seats_.contains(number)) {
    ++number;
  }
  return number;
}

}  // namespace bluefog::bfrun
