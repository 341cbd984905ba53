#include "topology/mixing/plan_agreement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <tuple>

#include "bluefog_cpp/error.hpp"

namespace bluefog {
namespace {

constexpr std::size_t kEdgesNamed = 8;

std::size_t half_bytes(int size) { return (static_cast<std::size_t>(size) + 7) / 8; }

bool has_bit(std::span<const std::byte> bits, int rank) {
  return (bits[rank / 8] & (std::byte{1} << (rank % 8))) != std::byte{0};
}

/// Reads one rank's two bitmaps out of the gathered ones.
struct GatheredBitmaps {
  int size;
  std::span<const std::byte> bytes;

  [[nodiscard]] std::span<const std::byte> destinations(int rank) const {
    return bytes.subspan(2 * half_bytes(size) * rank, half_bytes(size));
  }
  [[nodiscard]] std::span<const std::byte> sources(int rank) const {
    return bytes.subspan((2 * static_cast<std::size_t>(rank) + 1) * half_bytes(size),
                         half_bytes(size));
  }
};

/// Calls `visit(rank)` for each set bit; bytes of zeros cost one comparison.
template <typename Visit>
void for_each_bit(std::span<const std::byte> bits, Visit visit) {
  for (std::size_t i = 0; i < bits.size(); ++i) {
    for (int bit = 0; bits[i] != std::byte{0} && bit < 8; ++bit) {
      const int rank = static_cast<int>(8 * i) + bit;
      if (has_bit(bits, rank)) {
        visit(rank);
      }
    }
  }
}

void check_rank_exists(int rank, int size, int owner) {
  if (rank < size) {
    return;
  }
  throw InvalidArgument(
      fmt::format("edge bitmap of rank {} names rank {}, expected 0 to {}", owner, rank, size - 1));
}

std::string describe(const EdgeMismatch& edge) {
  return edge.missing == EdgeMismatch::Missing::Receive
             ? fmt::format("rank {0} sends to rank {1}, but rank {1} does not expect it",
                           edge.sender, edge.receiver)
             : fmt::format("rank {1} expects rank {0}, but rank {0} does not send to it",
                           edge.sender, edge.receiver);
}

}  // namespace

std::size_t edge_bitmap_bytes(int size) {
  if (size < 1) {
    throw InvalidArgument(fmt::format("edge bitmaps: size is {}, expected at least 1", size));
  }
  return 2 * half_bytes(size);
}

void write_edge_bitmaps(const NeighborPlan& plan, std::span<std::byte> out) {
  plan.validate();
  if (out.size() != edge_bitmap_bytes(plan.size)) {
    throw InvalidArgument(fmt::format("edge bitmaps of rank {}: expected room for {} bytes, got {}",
                                      plan.rank, edge_bitmap_bytes(plan.size), out.size()));
  }
  std::fill(out.begin(), out.end(), std::byte{0});
  const auto set = [](std::span<std::byte> bits, const std::vector<WeightedRank>& ranks) {
    for (const WeightedRank& entry : ranks) {
      bits[entry.rank / 8] |= std::byte{1} << (entry.rank % 8);
    }
  };
  set(out.first(half_bytes(plan.size)), plan.destinations);
  set(out.last(half_bytes(plan.size)), plan.sources);
}

std::vector<std::byte> edge_bitmaps(const NeighborPlan& plan) {
  std::vector<std::byte> bits(edge_bitmap_bytes(plan.size));
  write_edge_bitmaps(plan, bits);
  return bits;
}

StepLinks links_in(std::span<const std::byte> bitmaps) {
  StepLinks links;
  const auto half = bitmaps.size() / 2;
  for_each_bit(bitmaps.first(half), [&](int rank) { links.destinations.push_back(rank); });
  for_each_bit(bitmaps.last(half), [&](int rank) { links.sources.push_back(rank); });
  return links;
}

std::vector<EdgeMismatch> find_edge_mismatches(int size, std::span<const std::byte> gathered) {
  const std::size_t expected = edge_bitmap_bytes(size) * static_cast<std::size_t>(size);
  if (gathered.size() != expected) {
    throw InvalidArgument(fmt::format("edge bitmaps of {} ranks: expected {} bytes, got {}", size,
                                      expected, gathered.size()));
  }
  const GatheredBitmaps bitmaps{size, gathered};
  std::vector<EdgeMismatch> found;
  for (int rank = 0; rank < size; ++rank) {
    for_each_bit(bitmaps.destinations(rank), [&](int receiver) {
      check_rank_exists(receiver, size, rank);
      if (has_bit(bitmaps.sources(receiver), rank)) {
        return;
      }
      found.push_back({rank, receiver, EdgeMismatch::Missing::Receive});
    });
    for_each_bit(bitmaps.sources(rank), [&](int sender) {
      check_rank_exists(sender, size, rank);
      if (has_bit(bitmaps.destinations(sender), rank)) {
        return;
      }
      found.push_back({sender, rank, EdgeMismatch::Missing::Send});
    });
  }
  std::ranges::sort(
      found, {}, [](const EdgeMismatch& edge) { return std::tuple(edge.sender, edge.receiver); });
  return found;
}

void check_bitmaps_agree(int size, std::span<const std::byte> gathered,
                         std::string_view operation) {
  const std::vector<EdgeMismatch> found = find_edge_mismatches(size, gathered);
  if (found.empty()) {
    return;
  }
  std::string message = fmt::format("{}: senders and receivers do not match: ", operation);
  for (std::size_t i = 0; i < std::min(found.size(), kEdgesNamed); ++i) {
    message += (i == 0 ? "" : "; ") + describe(found[i]);
  }
  if (found.size() > kEdgesNamed) {
    message += fmt::format("; and {} more", found.size() - kEdgesNamed);
  }
  throw MismatchError(message);
}

void check_plans_agree(std::span<const NeighborPlan> plans) {
  if (plans.empty()) {
    throw InvalidArgument("neighbor plans: expected one per rank, got none");
  }
  const int size = static_cast<int>(plans.size());
  std::vector<std::byte> gathered;
  gathered.reserve(edge_bitmap_bytes(size) * plans.size());
  for (int rank = 0; rank < size; ++rank) {
    const NeighborPlan& plan = plans[rank];
    if (plan.rank != rank || plan.size != size) {
      throw InvalidArgument(
          fmt::format("neighbor plans: expected the part of rank {} of {}, got that of rank {} of "
                      "{}",
                      rank, size, plan.rank, plan.size));
    }
    const std::vector<std::byte> bits = edge_bitmaps(plan);
    gathered.insert(gathered.end(), bits.begin(), bits.end());
  }
  check_bitmaps_agree(size, gathered, "neighbor plans");
}

}  // namespace bluefog
