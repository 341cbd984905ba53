#include "bluefog_cpp/machine_layout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "bluefog_cpp/error.hpp"

namespace bluefog {

MachineLayout MachineLayout::single(int size) {
  if (size < 1) {
    throw InvalidArgument(fmt::format("MachineLayout: expected at least 1 rank, found {}", size));
  }
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return MachineLayout({std::move(ranks)});
}

MachineLayout MachineLayout::from_host_ids(const std::vector<std::string>& host_ids) {
  if (host_ids.empty()) {
    throw InvalidArgument("MachineLayout: expected at least 1 host identity, found none");
  }
  std::map<std::string, std::size_t> machine_of_host;
  std::vector<std::vector<int>> ranks_of;
  for (std::size_t rank = 0; rank < host_ids.size(); ++rank) {
    const auto [it, is_new] = machine_of_host.try_emplace(host_ids[rank], ranks_of.size());
    if (is_new) {
      ranks_of.emplace_back();
    }
    ranks_of[it->second].push_back(static_cast<int>(rank));
  }
  return MachineLayout(std::move(ranks_of));
}

MachineLayout MachineLayout::split(int ranks_per_machine) const {
  if (ranks_per_machine < 1) {
    throw InvalidArgument(
        fmt::format("expected at least 1 rank per machine, found {}", ranks_per_machine));
  }
  const auto part = static_cast<std::size_t>(ranks_per_machine);
  std::vector<std::vector<int>> parts;
  for (std::size_t machine = 0; machine < ranks_of_.size(); ++machine) {
    const auto& ranks = ranks_of_[machine];
    if (ranks.size() % part != 0) {
      throw InvalidArgument(fmt::format(
          "expected a number of ranks per machine that divides each host's number of ranks, found {} "
          "for host {}, which has {} ranks",
          ranks_per_machine, machine, ranks.size()));
    }
    for (std::size_t first = 0; first < ranks.size(); first += part) {
      const auto begin = ranks.begin() + static_cast<std::ptrdiff_t>(first);
      parts.emplace_back(begin, begin + ranks_per_machine);
    }
  }
  return MachineLayout(std::move(parts));
}

MachineLayout::MachineLayout(std::vector<std::vector<int>> ranks_of)
    : ranks_of_(std::move(ranks_of)) {
  // Splitting interleaved machines can leave parts out of order of their lowest rank.
  std::sort(ranks_of_.begin(), ranks_of_.end());
  std::size_t size = 0;
  for (const auto& ranks : ranks_of_) {
    size += ranks.size();
  }
  machine_of_.resize(size);
  local_rank_of_.resize(size);
  for (std::size_t machine = 0; machine < ranks_of_.size(); ++machine) {
    for (std::size_t local = 0; local < ranks_of_[machine].size(); ++local) {
      const auto rank = static_cast<std::size_t>(ranks_of_[machine][local]);
      machine_of_[rank] = static_cast<int>(machine);
      local_rank_of_[rank] = static_cast<int>(local);
    }
  }
}

int MachineLayout::machine_of(int rank) const {
  if (rank < 0 || rank >= size()) {
    throw InvalidArgument(
        fmt::format("MachineLayout: expected a rank in 0..{}, found {}", size() - 1, rank));
  }
  return machine_of_[static_cast<std::size_t>(rank)];
}

int MachineLayout::local_rank_of(int rank) const {
  (void)machine_of(rank);  // checks the range
  return local_rank_of_[static_cast<std::size_t>(rank)];
}

const std::vector<int>& MachineLayout::ranks_of(int machine) const {
  if (machine < 0 || machine >= machine_count()) {
    throw InvalidArgument(fmt::format("MachineLayout: expected a machine in 0..{}, found {}",
                                      machine_count() - 1, machine));
  }
  return ranks_of_[static_cast<std::size_t>(machine)];
}

bool MachineLayout::is_homogeneous() const noexcept {
  for (const auto& ranks : ranks_of_) {
    if (ranks.size() != ranks_of_.front().size()) {
      return false;
    }
  }
  return true;
}

}  // namespace bluefog
