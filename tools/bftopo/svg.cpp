#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "tools/bftopo/picture.hpp"

namespace bluefog::bftopo {
namespace {

constexpr double kMargin = 24.0;
constexpr double kTitleHeight = 24.0;
constexpr int kPanelsPerRow = 4;

struct Point {
  double x = 0.0;
  double y = 0.0;
};

/// The geometry of one panel.
struct Layout {
  double side;
  double node_radius;
  std::vector<Point> places;
};

Layout arrange(const Picture& picture) {
  const double radius = std::clamp(220.0 / picture.size, 2.5, 12.0);
  Layout layout{std::clamp(picture.size * 14.0, 200.0, 900.0), radius, {}};
  const double inner = layout.side - 2.0 * kMargin;
  for (int rank = 0; rank < picture.size; ++rank) {
    if (picture.grid) {
      const auto [rows, columns] = *picture.grid;
      const double cell = inner / std::max({rows - 1, columns - 1, 1});
      layout.places.push_back(
          {kMargin + cell * (rank % columns), kMargin + cell * (rank / columns)});
    } else {
      const double angle = 2.0 * std::numbers::pi * rank / picture.size;
      layout.places.push_back({layout.side / 2.0 + inner / 2.0 * std::sin(angle),
                               layout.side / 2.0 - inner / 2.0 * std::cos(angle)});
    }
  }
  return layout;
}

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '<') {
      result += "&lt;";
    } else if (c == '&') {
      result += "&amp;";
    } else {
      result += c;
    }
  }
  return result;
}

/// A slightly bent line, so that edges along the circle's diameters stay apart; it ends at the rim
/// of the nodes.
std::string line_of(const Layout& layout, const DrawnEdge& edge) {
  const Point from = layout.places[static_cast<std::size_t>(edge.from)];
  const Point to = layout.places[static_cast<std::size_t>(edge.to)];
  const double length = std::max(std::hypot(to.x - from.x, to.y - from.y), 1e-9);
  const Point along{(to.x - from.x) / length, (to.y - from.y) / length};
  const double bend = edge.is_mutual ? 0.0 : 0.08 * length;
  const Point middle{(from.x + to.x) / 2.0 - along.y * bend,
                     (from.y + to.y) / 2.0 + along.x * bend};
  const double end = layout.node_radius + (edge.is_mutual ? 0.0 : 3.0);
  return fmt::format("<path d=\"M{:.1f} {:.1f} Q{:.1f} {:.1f} {:.1f} {:.1f}\"{}/>\n",
                     from.x + along.x * layout.node_radius, from.y + along.y * layout.node_radius,
                     middle.x, middle.y, to.x - along.x * end, to.y - along.y * end,
                     edge.is_mutual ? "" : " marker-end=\"url(#arrow)\"");
}

std::string panel_of(const Picture& picture, const Panel& panel, const Layout& layout) {
  std::string text = fmt::format("<text x=\"{:.1f}\" y=\"12\" class=\"title\">{}</text>\n",
                                 layout.side / 2.0, escaped(panel.title));
  text += fmt::format("<g transform=\"translate(0 {})\">\n<g class=\"edges\">\n", kTitleHeight);
  for (const DrawnEdge& edge : panel.edges) {
    text += line_of(layout, edge);
  }
  text += "</g>\n";
  for (int rank = 0; rank < picture.size; ++rank) {
    const Point place = layout.places[static_cast<std::size_t>(rank)];
    text += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{:.1f}\"/>\n", place.x, place.y,
                        layout.node_radius);
    if (layout.node_radius >= 7.0) {
      text += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", place.x, place.y, rank);
    }
  }
  return text + "</g>\n";
}

}  // namespace

std::string to_svg(const Picture& picture) {
  const Layout layout = arrange(picture);
  const int count = static_cast<int>(picture.panels.size());
  const int columns = std::min(count, kPanelsPerRow);
  const int rows = (count + kPanelsPerRow - 1) / kPanelsPerRow;
  const double height = layout.side + kTitleHeight;
  std::string text = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
      "viewBox=\"0 0 {0:.0f} {1:.0f}\">\n<title>{2}</title>\n",
      columns * layout.side, rows * height, escaped(picture.name));
  text +=
      "<style>circle{fill:#fff;stroke:#333}path{fill:none}.edges{stroke:#357;stroke-width:1}"
      "text{font:9px sans-serif;text-anchor:middle;dominant-baseline:central}"
      ".title{font-size:12px}</style>\n"
      "<defs><marker id=\"arrow\" viewBox=\"0 0 6 6\" refX=\"5\" refY=\"3\" markerWidth=\"6\" "
      "markerHeight=\"6\" orient=\"auto\"><path d=\"M0 0L6 3L0 6z\" style=\"fill:#357\"/></marker>"
      "</defs>\n";
  for (int p = 0; p < count; ++p) {
    text += fmt::format("<g transform=\"translate({:.0f} {:.0f})\">\n",
                        p % kPanelsPerRow * layout.side, p / kPanelsPerRow * height);
    text += panel_of(picture, picture.panels[static_cast<std::size_t>(p)], layout) + "</g>\n";
  }
  return text + "</svg>\n";
}

}  // namespace bluefog::bftopo
