#include "topology/static_graphs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "bluefog_cpp/error.hpp"

namespace bluefog::topology {
namespace {

void require_size(int size, std::string_view graph) {
  if (size >= 1) {
    return;
  }
  throw InvalidArgument(fmt::format("{} graph: size is {}, expected at least 1", graph, size));
}

void require_base(int base, std::string_view graph) {
  if (base >= 2) {
    return;
  }
  throw InvalidArgument(fmt::format("{} graph: base is {}, expected at least 2", graph, base));
}

/// Powers of `base` up to and including `limit`.
std::vector<int> powers_up_to(int base, int limit) {
  std::vector<int> powers;
  for (std::int64_t power = 1; power <= limit; power *= base) {
    powers.push_back(static_cast<int>(power));
  }
  return powers;
}

/// Equal weights for self and the ranks at `offsets`.
MixingMatrix uniform_pattern(std::vector<int> shape, std::set<int> offsets) {
  offsets.insert(0);
  const double weight = 1.0 / static_cast<double>(offsets.size());
  std::vector<WeightedRank> entries;
  for (const int offset : offsets) {
    entries.push_back({offset, weight});
  }
  return MixingMatrix::from_pattern({.shape = std::move(shape), .entries = std::move(entries)});
}

GridShape resolve_shape(int size, std::optional<GridShape> shape, std::string_view graph) {
  require_size(size, graph);
  if (!shape) {
    return closest_factors(size);
  }
  if (shape->rows < 1 || shape->columns < 1 ||
      static_cast<std::int64_t>(shape->rows) * shape->columns != size) {
    throw InvalidArgument(fmt::format("{} graph: shape {} x {} does not hold {} ranks", graph,
                                      shape->rows, shape->columns, size));
  }
  return *shape;
}

/// The up to four neighbours of `rank` on a grid with borders.
std::vector<int> mesh_neighbors(const GridShape& shape, int rank) {
  const int row = rank / shape.columns;
  const int column = rank % shape.columns;
  std::vector<int> neighbors;
  if (row > 0) {
    neighbors.push_back(rank - shape.columns);
  }
  if (column > 0) {
    neighbors.push_back(rank - 1);
  }
  if (column + 1 < shape.columns) {
    neighbors.push_back(rank + 1);
  }
  if (row + 1 < shape.rows) {
    neighbors.push_back(rank + shape.columns);
  }
  return neighbors;
}

}  // namespace

MixingMatrix exponential(int size, int base) {
  require_size(size, "exponential");
  require_base(base, "exponential");
  std::set<int> offsets;
  for (const int distance : powers_up_to(base, size - 1)) {
    offsets.insert(size - distance);
  }
  return uniform_pattern({size}, std::move(offsets));
}

MixingMatrix symmetric_exponential(int size, int base) {
  require_size(size, "symmetric exponential");
  require_base(base, "symmetric exponential");
  std::set<int> offsets;
  for (const int distance : powers_up_to(base, size / 2)) {
    offsets.insert(distance);
    offsets.insert(size - distance);
  }
  return uniform_pattern({size}, std::move(offsets));
}

MixingMatrix ring(int size, RingStyle style) {
  require_size(size, "ring");
  std::set<int> offsets;
  if (size > 1 && style != RingStyle::Left) {
    offsets.insert(size - 1);
  }
  if (size > 1 && style != RingStyle::Right) {
    offsets.insert(1);
  }
  return uniform_pattern({size}, std::move(offsets));
}

MixingMatrix mesh_2d(int size, std::optional<GridShape> shape) {
  const GridShape grid = resolve_shape(size, shape, "mesh");
  std::vector<std::vector<WeightedRank>> rows(size);
  for (int rank = 0; rank < size; ++rank) {
    const std::vector<int> neighbors = mesh_neighbors(grid, rank);
    double given = 0.0;
    for (const int neighbor : neighbors) {
      const std::size_t degree = std::max(neighbors.size(), mesh_neighbors(grid, neighbor).size());
      rows[rank].push_back({neighbor, 1.0 / static_cast<double>(1 + degree)});
      given += rows[rank].back().weight;
    }
    rows[rank].push_back({rank, 1.0 - given});
  }
  return MixingMatrix::from_rows(std::move(rows));
}

MixingMatrix torus_2d(int size, std::optional<GridShape> shape) {
  const GridShape grid = resolve_shape(size, shape, "torus");
  std::set<int> offsets;
  if (grid.rows > 1) {
    offsets.insert({grid.columns, (grid.rows - 1) * grid.columns});
  }
  if (grid.columns > 1) {
    offsets.insert({1, grid.columns - 1});
  }
  return uniform_pattern({grid.rows, grid.columns}, std::move(offsets));
}

MixingMatrix star(int size, int center) {
  require_size(size, "star");
  if (center < 0 || center >= size) {
    throw InvalidArgument(
        fmt::format("star graph: center is {}, expected 0 to {}", center, size - 1));
  }
  const double weight = 1.0 / size;
  std::vector<std::vector<WeightedRank>> rows(size);
  for (int rank = 0; rank < size; ++rank) {
    rows[center].push_back({rank, weight});
    if (rank != center) {
      rows[rank] = {{center, weight}, {rank, 1.0 - weight}};
    }
  }
  return MixingMatrix::from_rows(std::move(rows));
}

MixingMatrix fully_connected(int size) {
  require_size(size, "fully connected");
  std::vector<WeightedRank> entries(size);
  for (int offset = 0; offset < size; ++offset) {
    entries[offset] = {offset, 1.0 / size};
  }
  return MixingMatrix::from_pattern({.shape = {size}, .entries = std::move(entries)});
}

MixingMatrix hypercube(int size) {
  require_size(size, "hypercube");
  if ((size & (size - 1)) != 0) {
    throw InvalidArgument(
        fmt::format("hypercube graph: size is {}, expected a power of two", size));
  }
  std::vector<int> shape;
  std::set<int> offsets;
  for (int bit = 1; bit < size; bit *= 2) {
    shape.push_back(2);
    offsets.insert(bit);
  }
  return uniform_pattern(std::move(shape), std::move(offsets));
}

GridShape closest_factors(int size) {
  require_size(size, "grid");
  int rows = static_cast<int>(std::sqrt(static_cast<double>(size)));
  while (size % rows != 0) {
    --rows;
  }
  return {rows, size / rows};
}

}  // namespace bluefog::topology
