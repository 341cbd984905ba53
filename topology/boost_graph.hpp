#pragma once

#include <boost/graph/adjacency_list.hpp>

#include "topology/mixing_matrix.hpp"

namespace bluefog::topology {

/// A directed graph with ranks as vertices and weights on its edges: source
/// sends to target, which gives it that weight; a self loop is a self weight.
using WeightedDigraph =
    boost::adjacency_list<boost::vecS, boost::vecS, boost::bidirectionalS, boost::no_property,
                          boost::property<boost::edge_weight_t, double>>;

/// W of a user's graph, weights as given.
/// @throws InvalidArgument naming the row, if the graph has no vertex, an edge
///   twice, or a weight that is not finite.
[[nodiscard]] MixingMatrix from_graph(const WeightedDigraph& graph);

/// The graph of W, self weights as self loops, for Boost's algorithms.
/// @throws InvalidArgument beyond 200 million entries (a complete graph that
///   is kept as a pattern has no room as edges).
[[nodiscard]] WeightedDigraph to_graph(const MixingMatrix& matrix);

/// Number of sets of ranks that all reach each other along edges of non-zero
/// weight; 1 means strongly connected. Errors as `to_graph`.
[[nodiscard]] int count_strong_components(const MixingMatrix& matrix);

/// True if every rank's value reaches every other rank in some number of
/// steps. Patterns of any size are answered from their one row.
[[nodiscard]] bool is_strongly_connected(const MixingMatrix& matrix);

/// True if every rank has as many edges, in and out and to itself together, as
/// every other one. Answers to BlueFog's `IsRegularGraph`.
[[nodiscard]] bool is_regular(const MixingMatrix& matrix);

}  // namespace bluefog::topology
