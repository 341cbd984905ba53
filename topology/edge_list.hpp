#pragma once

#include <filesystem>
#include <istream>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "topology/mixing_matrix.hpp"

namespace bluefog::topology {

/// Weights for a graph whose edges carry none.
enum class WeightRule {
  /// W(i, j) = 1 / (1 + in-degree of i), self included. Row stochastic.
  Uniform,
  /// W(i, j) = 1 / (1 + max(d_i, d_j)), the rest for self. Doubly stochastic;
  /// every edge must be there in both directions.
  MetropolisHastings,
};

/// W on the given edges by `rule`; weights in `edges` are not read. A self
/// loop is allowed and says nothing.
/// @throws InvalidArgument if an edge is out of range or there twice, or under
///   MetropolisHastings has no edge back.
[[nodiscard]] MixingMatrix from_unweighted_edges(int size, std::span<const WeightedEdge> edges,
                                                 WeightRule rule);

/// The choices of `read_edge_list`.
struct EdgeListOptions {
  /// Number of ranks; 0: the highest rank of the file + 1, which then may be at most 1,024, or four
  /// for each edge.
  int size = 0;
  /// Weights for a file that has none, and must not. Unset: the file's weights, or else Uniform.
  std::optional<WeightRule> rule{};
};

/// Reads a graph from text: one edge per line, `i j weight` or `i j`, meaning
/// that i sends to j and j gives it that weight; `i i weight` is rank i's self
/// weight (0 where a weighted file names none). Either every line has a weight
/// or none has. `#` starts a comment; empty lines are skipped. Weights are taken
/// as they are: averages ask for rows that sum to 1, push-sum for columns, and
/// the optimizers refuse others by row and sum (`check` finds them beforehand).
///
/// @param name where the text comes from, for the messages.
/// @throws InvalidArgument naming the line: something that is no rank (at most
///   9,999,999, or below options.size) or no finite number, a fourth word, a
///   repeated edge, weights on some lines only, an overlong line; or a text
///   without edges, with weights where options.rule would make others, or with a rank far above
///   all others where options.size is 0.
[[nodiscard]] MixingMatrix read_edge_list(std::istream& text, std::string_view name,
                                          const EdgeListOptions& options = {});

/// The same from a file. @throws InvalidArgument also if it cannot be read.
[[nodiscard]] MixingMatrix load_edge_list(const std::filesystem::path& path,
                                          const EdgeListOptions& options = {});

}  // namespace bluefog::topology
