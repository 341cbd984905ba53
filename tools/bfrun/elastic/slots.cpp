#include "tools/bfrun/elastic/slots.hpp"

#include <algorithm>
#include <set>
#include <utility>

namespace bluefog::bfrun {

std::vector<int> Slots::take_leaving(const std::function<bool(int rank)>& may_leave) {
  std::vector<int> leaving;
  for (auto next = seats_.begin(); next != seats_.end();) {
    auto& [rank, seat] = *next;
    const bool has_vanished = !is_there(seat.slot);
    if (has_vanished && seat.state == State::Spoilt) {
      next = seats_.erase(next);
      continue;
    }
    if (has_vanished && seat.state == State::Used && may_leave(rank)) {
      seat.state = State::Leaving;
      leaving.push_back(rank);
    }
    ++next;
  }
  return leaving;
}

std::vector<Slots::NewRank> Slots::fill(int most_now) {
  std::vector<NewRank> filled;
  int running = occupied();
  if (running >= most_now) {
    return filled;
  }
  std::set<std::pair<std::string, int>> taken;
  for (const auto& [rank, seat] : seats_) {
    taken.emplace(seat.slot.host, seat.slot.index);
  }
  int number = 0;  // the lowest that is free
  for (const HostSlots& host : hosts_) {
    for (int index = 0; index < host.slots && running < most_now; ++index) {
      if (taken.contains({host.name, index})) {
        continue;
      }
      while (seats_.contains(number)) {
        ++number;
      }
      const Slot slot{.host = host.name, .index = index};
      seats_[number] = {.slot = slot};
      filled.push_back({.rank = number, .slot = slot});
      ++running;
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

int Slots::occupied() const {
  return static_cast<int>(std::ranges::count_if(
      seats_, [](const auto& seat) { return seat.second.state != State::Spoilt; }));
}

}  // namespace bluefog::bfrun
