#include <fmt/format.h>

#include "tools/bftopo/picture.hpp"

namespace bluefog::bftopo {
namespace {

/// A quoted DOT string.
std::string dot_string(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
    }
    quoted += c;
  }
  return quoted + "\"";
}

}  // namespace

std::string to_dot(const Picture& picture) {
  std::string text = fmt::format("digraph {} {{\n  layout=circo;\n  node [shape=circle];\n",
                                 dot_string(picture.name));
  for (std::size_t p = 0; p < picture.panels.size(); ++p) {
    const Panel& panel = picture.panels[p];
    // A rank has one node per panel.
    const std::string prefix = picture.panels.size() > 1 ? fmt::format("s{}_", p) : "r";
    text += fmt::format("  subgraph cluster_{} {{\n    label={};\n", p, dot_string(panel.title));
    for (int rank = 0; rank < picture.size; ++rank) {
      text += fmt::format("    {}{} [label=\"{}\"];\n", prefix, rank, rank);
    }
    for (const DrawnEdge& edge : panel.edges) {
      text += fmt::format("    {}{} -> {}{}{};\n", prefix, edge.from, prefix, edge.to,
                          edge.is_mutual ? " [dir=none]" : "");
    }
    text += "  }\n";
  }
  return text + "}\n";
}

}  // namespace bluefog::bftopo
