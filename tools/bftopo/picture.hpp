#pragma once

#include <optional>
#include <string>
#include <vector>

#include "topology/schedule.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::bftopo {

/// A line between two ranks.
struct DrawnEdge {
  int from = 0;
  int to = 0;
  /// Whether both directions exist: the line is drawn once, without an arrow.
  bool is_mutual = false;
};

/// One step of a schedule, ready to be drawn.
struct Panel {
  std::string title;
  std::vector<DrawnEdge> edges;
};

/// The contents of a picture: the same ranks once per panel.
struct Picture {
  std::string name;
  int size = 1;
  std::vector<Panel> panels;
  /// Places on a grid; absent: on a circle.
  std::optional<topology::GridShape> grid;
};

/// The edges of a step, mutual ones once.
[[nodiscard]] std::vector<DrawnEdge> edges_of(const MixingMatrix& matrix);

/// A digraph for Graphviz; one cluster per panel.
[[nodiscard]] std::string to_dot(const Picture& picture);

/// Panels side by side, ranks on a circle or grid.
[[nodiscard]] std::string to_svg(const Picture& picture);

}  // namespace bluefog::bftopo
