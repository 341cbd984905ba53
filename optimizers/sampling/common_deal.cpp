#include "optimizers/sampling/common_deal.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <limits>
#include <tuple>

namespace bluefog::optimizers::sampling {
namespace {

bool is_same(const KnownDeal& a, const KnownDeal& b) {
  return a.generation == b.generation && a.members == b.members;
}

bool is_member(int number, const std::vector<int>& members) {
  return std::ranges::find(members, number) != members.end();
}

/// The rank's part of `deal`; nothing where it does not know it.
std::optional<KnownDeal> part_of(const Standing& standing, const KnownDeal& deal) {
  if (standing.is_new) {
    return std::nullopt;
  }
  if (standing.known.empty() && deal.generation == 0) {
    return KnownDeal{.members = deal.members};
  }
  const auto found = std::ranges::find_if(
      standing.known, [&deal](const KnownDeal& known) { return is_same(known, deal); });
  return found != standing.known.end() ? std::optional(*found) : std::nullopt;
}

/// Whether all of its members that are left know a deal, how new it is, and how many these are.
using Worth = std::tuple<bool, std::int64_t, std::int64_t>;

Worth worth_of(const std::vector<Standing>& standings, const KnownDeal& deal) {
  bool is_known = true;
  std::int64_t members = 0;
  for (const Standing& standing : standings) {
    if (standing.is_new || !is_member(standing.number, deal.members)) {
      continue;
    }
    const bool knows = part_of(standing, deal).has_value();
    is_known = is_known && knows;
    members += knows ? 1 : 0;
  }
  if (is_known && members > 0) {
    return {true, deal.generation, members};
  }
  return {false, members, deal.generation};
}

}  // namespace

std::optional<CommonDeal> common_deal(const std::vector<Standing>& standings) {
  const KnownDeal* best = nullptr;
  for (const Standing& standing : standings) {
    for (const KnownDeal& deal : standing.known) {
      if (best == nullptr || worth_of(standings, deal) > worth_of(standings, *best)) {
        best = &deal;
      }
    }
  }
  if (best == nullptr) {
    return std::nullopt;
  }
  CommonDeal common{.generation = best->generation, .members = best->members};
  for (const Standing& standing : standings) {
    const auto part = part_of(standing, *best);
    common.has_part.push_back(part && is_member(standing.number, best->members));
    common.drawn.push_back(part ? part->drawn : 0);
    if (!standing.known.empty() && !standing.is_new) {
      const KnownDeal& newest = standing.known.front();
      common.has_ended = common.has_ended || newest.has_ended;
      common.is_newest = common.is_newest && is_same(newest, *best);
    }
  }
  common.giver =
      static_cast<std::size_t>(std::ranges::find(common.has_part, true) - common.has_part.begin());
  return common;
}

Draws draws_of(const CommonDeal& common, const std::vector<int>& ranks,
               const std::vector<at::Tensor>& dealt, const std::vector<at::Tensor>& later,
               std::optional<std::int64_t> trained) {
  Draws draws{.shares = std::vector<at::Tensor>(ranks.size()), .drawn = common.drawn};
  const auto put = [&](std::size_t place, const at::Tensor& share, std::int64_t count) {
    const std::int64_t more = later[place].numel();
    draws.shares[place] =
        at::cat({share.slice(0, 0, count), later[place],
                 share.slice(0, std::min(count + more, share.numel()), share.numel())});
    draws.drawn[place] = count + more;
  };
  std::int64_t fewest = std::numeric_limits<std::int64_t>::max();
  for (std::size_t place = 0; place < ranks.size(); ++place) {
    if (common.has_part[place]) {
      const auto member = std::ranges::find(common.members, ranks[place]) - common.members.begin();
      put(place, dealt[static_cast<std::size_t>(member)], common.drawn[place]);
      fewest = std::min(fewest, draws.drawn[place]);
    }
  }
  const std::int64_t begins = trained.value_or(fewest);
  for (std::size_t place = 0; place < ranks.size(); ++place) {
    if (!common.has_part[place]) {
      put(place,
          at::cat({at::full({begins}, -1, at::kLong), draws.shares[common.giver].slice(0, begins)}),
          begins);
    }
  }
  return draws;
}

}  // namespace bluefog::optimizers::sampling
