#include "ops/neighbor_inference.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

#include "bluefog_cpp/error.hpp"
#include "ops/calls/allgather_parts.hpp"
#include "ops/calls/validation.hpp"
#include "topology/edge_list.hpp"

namespace bluefog::ops {
namespace {

using Neighbors = std::vector<std::vector<int>>;

void check_others(const Context& context, std::vector<int> ranks, std::string_view what) {
  const auto is_other = [&](int rank) {
    return rank >= 0 && rank < context.size() && rank != context.rank();
  };
  std::ranges::sort(ranks);
  if (!std::ranges::all_of(ranks, is_other) || std::ranges::adjacent_find(ranks) != ranks.end()) {
    throw InvalidArgument(
        fmt::format("rank {}, {}: expected different other ranks of 0 to {}, found {}",
                    context.rank(), what, context.size() - 1, ranks));
  }
}

/// The ranks that each rank named, by rank.
Neighbors gather(Context& context, const std::vector<int>& named, std::string_view what) {
  validate(context, [&] { check_others(context, named, what); });
  Neighbors neighbors = allgather_parts(context, what, named);
  for (std::vector<int>& ranks : neighbors) {
    std::ranges::sort(ranks);
  }
  return neighbors;
}

/// The lists of the other ends of the edges.
Neighbors reversed(const Neighbors& neighbors) {
  Neighbors others(neighbors.size());
  for (std::size_t rank = 0; rank < neighbors.size(); ++rank) {
    for (const int other : neighbors[rank]) {
      others[static_cast<std::size_t>(other)].push_back(static_cast<int>(rank));
    }
  }
  return others;
}

MixingMatrix uniform_matrix(const Neighbors& sources) {
  std::vector<WeightedEdge> edges;
  for (std::size_t rank = 0; rank < sources.size(); ++rank) {
    for (const int source : sources[rank]) {
      edges.push_back({.source = source, .destination = static_cast<int>(rank)});
    }
  }
  return topology::from_unweighted_edges(static_cast<int>(sources.size()), edges,
                                         topology::WeightRule::Uniform);
}

}  // namespace

InferredNeighbors infer_sources(Context& context, const std::vector<int>& destinations) {
  const Neighbors sources = reversed(gather(context, destinations, "infer_sources"));
  return {.ranks = sources[static_cast<std::size_t>(context.rank())],
          .matrix = uniform_matrix(sources)};
}

InferredNeighbors infer_destinations(Context& context, const std::vector<int>& sources) {
  const Neighbors heard = gather(context, sources, "infer_destinations");
  return {.ranks = reversed(heard)[static_cast<std::size_t>(context.rank())],
          .matrix = uniform_matrix(heard)};
}

}  // namespace bluefog::ops
