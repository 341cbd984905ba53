#include "topology/boost_graph.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/graph/strong_components.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "bluefog_cpp/error.hpp"

namespace bluefog::topology {
namespace {

constexpr std::int64_t kMaxEdges = 200'000'000;

/// Ranks that the pattern's offsets reach from rank 0. In a finite group that
/// is a subgroup, so that all of it means strongly connected.
bool generates_everything(const TranslationPattern& pattern) {
  std::vector<char> seen(pattern.size(), 0);
  std::vector<int> open = {0};
  seen[0] = 1;
  std::size_t count = 1;
  while (!open.empty() && count < seen.size()) {
    const int rank = open.back();
    open.pop_back();
    for (const WeightedRank& entry : pattern.entries) {
      const int next = pattern.shift(rank, entry.rank);
      if (entry.weight == 0.0 || seen[next]) {
        continue;
      }
      seen[next] = 1;
      ++count;
      open.push_back(next);
    }
  }
  return count == seen.size();
}

}  // namespace

MixingMatrix from_graph(const WeightedDigraph& graph) {
  const auto weights = get(boost::edge_weight, graph);
  std::vector<std::vector<WeightedRank>> rows(num_vertices(graph));
  for (auto [edge, end] = edges(graph); edge != end; ++edge) {
    rows[target(*edge, graph)].push_back(
        {static_cast<int>(source(*edge, graph)), get(weights, *edge)});
  }
  return MixingMatrix::from_rows(std::move(rows));
}

WeightedDigraph to_graph(const MixingMatrix& matrix) {
  if (matrix.entry_count() > kMaxEdges) {
    throw InvalidArgument(fmt::format("graph of a mixing matrix: {} entries, expected at most {}",
                                      matrix.entry_count(), kMaxEdges));
  }
  WeightedDigraph graph(matrix.size());
  for (int rank = 0; rank < matrix.size(); ++rank) {
    for (const WeightedRank& entry : matrix.row(rank)) {
      add_edge(entry.rank, rank, entry.weight, graph);
    }
  }
  return graph;
}

int count_strong_components(const MixingMatrix& matrix) {
  WeightedDigraph graph = to_graph(matrix);
  const auto weights = get(boost::edge_weight, graph);
  remove_edge_if([&](const auto& edge) { return get(weights, edge) == 0.0; }, graph);
  std::vector<int> component(matrix.size());
  return boost::strong_components(
      graph, boost::make_iterator_property_map(component.begin(), get(boost::vertex_index, graph)));
}

bool is_strongly_connected(const MixingMatrix& matrix) {
  if (matrix.pattern()) {
    return generates_everything(*matrix.pattern());
  }
  return count_strong_components(matrix) == 1;
}

bool is_regular(const MixingMatrix& matrix) {
  if (matrix.pattern() != nullptr) {
    return true;
  }
  std::vector<std::size_t> degrees(static_cast<std::size_t>(matrix.size()), 0);
  for (int rank = 0; rank < matrix.size(); ++rank) {
    const std::vector<WeightedRank> row = matrix.row(rank);
    degrees[static_cast<std::size_t>(rank)] += row.size();
    for (const WeightedRank& entry : row) {
      ++degrees[static_cast<std::size_t>(entry.rank)];
    }
  }
  return std::ranges::adjacent_find(degrees, std::not_equal_to<>()) == degrees.end();
}

}  // namespace bluefog::topology
