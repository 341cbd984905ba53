#include <fmt/format.h>

#include <algorithm>

#include "tools/bftopo/commands.hpp"
#include "tools/bftopo/picture.hpp"

namespace bluefog::bftopo {
namespace {

constexpr int kMaxRanksDrawn = 2000;
constexpr std::int64_t kMaxEdgesDrawn = 200'000;
constexpr std::int64_t kMaxPanels = 40;

std::optional<topology::GridShape> grid_of(const Options& options, int size) {
  const bool is_grid = options.family && std::ranges::count(options.family->options, "shape") > 0;
  if (!is_grid) {
    return std::nullopt;
  }
  return options.family_options.shape.value_or(topology::closest_factors(size));
}

Panel panel_of_step(const Schedule& schedule, std::int64_t step) {
  const MixingMatrix matrix = schedule.mixing_matrix(step);
  if (matrix.entry_count() > kMaxEdgesDrawn) {
    throw UsageError(
        fmt::format("draw: {} edges, expected at most {}", matrix.entry_count(), kMaxEdgesDrawn));
  }
  return {schedule.period_steps() > 1 ? fmt::format("step {}", step) : "", edges_of(matrix)};
}

}  // namespace

std::vector<DrawnEdge> edges_of(const MixingMatrix& matrix) {
  std::vector<DrawnEdge> edges;
  for (int rank = 0; rank < matrix.size(); ++rank) {
    const std::vector<int> senders = matrix.in_neighbors(rank);
    for (const int reader : matrix.out_neighbors(rank)) {
      const bool is_mutual = std::ranges::binary_search(senders, reader);
      if (!is_mutual || rank < reader) {
        edges.push_back({rank, reader, is_mutual});
      }
    }
  }
  return edges;
}

std::string draw_text(const Options& options, const Subject& subject) {
  const Schedule schedule = subject.schedule();
  if (schedule.size() > kMaxRanksDrawn) {
    throw UsageError(
        fmt::format("draw: {} ranks, expected at most {}", schedule.size(), kMaxRanksDrawn));
  }
  Picture picture{.name = fmt::format("{} {}", subject.name, schedule.size()),
                  .size = schedule.size(),
                  .panels = {},
                  .grid = grid_of(options, schedule.size())};
  const std::int64_t first = options.step.value_or(0);
  const std::int64_t end = options.step ? first + 1 : std::min(schedule.period_steps(), kMaxPanels);
  for (std::int64_t step = first; step < end; ++step) {
    picture.panels.push_back(panel_of_step(schedule, step));
  }
  return options.format == PictureFormat::Svg ? to_svg(picture) : to_dot(picture);
}

}  // namespace bluefog::bftopo
