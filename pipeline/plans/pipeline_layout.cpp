#include "pipeline/pipeline_layout.hpp"

#include <fmt/format.h>

#include "bluefog_cpp/error.hpp"

namespace bluefog::pipeline {
namespace {

void check_within(const char* what, int value, int count) {
  if (value < 0 || value >= count) {
    throw InvalidArgument(fmt::format("pipeline layout: expected a {} from 0 to {}, found {}", what,
                                      count - 1, value));
  }
}

}  // namespace

PipelineLayout::PipelineLayout(int size, int stages) : size_(size), stages_(stages) {
  if (size < 1 || stages < 1 || size % stages != 0) {
    throw InvalidArgument(
        fmt::format("pipeline layout: expected a number of stages that divides the {} ranks, found "
                    "{}",
                    size, stages));
  }
}

int PipelineLayout::stage_of(int rank) const {
  check_within("rank", rank, size_);
  return rank % stages_;
}

int PipelineLayout::replica_of(int rank) const {
  check_within("rank", rank, size_);
  return rank / stages_;
}

int PipelineLayout::rank_of(int replica, int stage) const {
  check_within("replica", replica, replicas());
  check_within("stage", stage, stages_);
  return replica * stages_ + stage;
}

std::vector<int> PipelineLayout::ranks_of_stage(int stage) const {
  std::vector<int> ranks;
  for (int replica = 0; replica < replicas(); ++replica) {
    ranks.push_back(rank_of(replica, stage));
  }
  return ranks;
}

std::vector<LayerMove> layer_moves(const Placement& before, const Placement& after) {
  if (before.layout.size() != after.layout.size() ||
      before.partition.layers() != after.partition.layers()) {
    throw InvalidArgument(fmt::format(
        "pipeline layout: expected the same ranks and layers before and after, found {} "
        "and {} ranks, {} and {} layers",
        before.layout.size(), after.layout.size(), before.partition.layers(),
        after.partition.layers()));
  }
  std::vector<LayerMove> moves;
  for (int layer = 0; layer < after.partition.layers(); ++layer) {
    const int had = before.partition.stage_of(layer);
    const int has = after.partition.stage_of(layer);
    for (const int rank : after.layout.ranks_of_stage(has)) {
      const int from = before.layout.rank_of(before.layout.replica_of(rank), had);
      if (from != rank) {
        moves.push_back({.layer = layer, .from = from, .to = rank});
      }
    }
  }
  return moves;
}

}  // namespace bluefog::pipeline
