#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "pipeline/elastic_plan.hpp"
#include "pipeline/epoch_shares.hpp"
#include "pipeline/freeze_schedule.hpp"
#include "pipeline/partition.hpp"
#include "pipeline/pipeline_layout.hpp"
#include "pipeline/schedule_simulation.hpp"
#include "pipeline/stage_actions.hpp"
#include "python/bindings/bindings.hpp"

namespace bluefog::python {
namespace {

namespace pipes = bluefog::pipeline;

using Costs = std::vector<double>;
using Skips = std::vector<std::pair<int, int>>;

std::vector<pipes::SkipConnection> skips_of(const Skips& skips) {
  std::vector<pipes::SkipConnection> connections;
  for (const auto& [from, to] : skips) {
    connections.push_back({.from = from, .to = to});
  }
  return connections;
}

std::vector<int> begins_of(const pipes::Partition& partition) {
  std::vector<int> begins;
  for (int stage = 0; stage < partition.stages(); ++stage) {
    begins.push_back(partition.begin(stage));
  }
  return begins;
}

pipes::Placement placement_of(int size, const std::vector<int>& begins, int layers) {
  return {pipes::PipelineLayout(size, static_cast<int>(begins.size())),
          pipes::Partition(begins, layers)};
}

double bubble_of(const std::string& schedule, int stages, int micro_batches, double forward,
                 double backward) {
  const pipes::PipelineShape shape{.stages = stages, .micro_batches = micro_batches};
  std::vector<std::vector<pipes::Action>> actions;
  for (int stage = 0; stage < stages; ++stage) {
    actions.push_back(pipes::stage_actions(pipes::schedule_named(schedule), shape, stage));
  }
  const std::vector<pipes::StageTimes> times(
      actions.size(), pipes::StageTimes{.forward = forward, .backward = backward});
  return pipes::simulate(actions, times).bubble;
}

void bind_partitions(py::module_& module) {
  module.def(
      "partition_layers",
      [](const Costs& costs, int stages, int frozen, const Skips& skips, double slack,
         double frozen_share) {
        return begins_of(pipes::partition_layers(costs, {.stages = stages,
                                                         .frozen = frozen,
                                                         .skips = skips_of(skips),
                                                         .slack = slack,
                                                         .frozen_share = frozen_share}));
      },
      py::arg("costs"), py::arg("stages"), py::arg("frozen"), py::arg("skips"), py::arg("slack"),
      py::arg("frozen_share"));
  module.def(
      "layer_moves",
      [](int size, int layers, const std::vector<int>& before, const std::vector<int>& after) {
        std::vector<std::tuple<int, int, int>> moves;
        for (const pipes::LayerMove& move : pipes::layer_moves(placement_of(size, before, layers),
                                                               placement_of(size, after, layers))) {
          moves.emplace_back(move.layer, move.from, move.to);
        }
        return moves;
      },
      py::arg("size"), py::arg("layers"), py::arg("before"), py::arg("after"));
  module.attr("frozen_share") = pipes::kFrozenShare;
  module.def("freeze_bound", &pipes::freeze_bound, py::arg("layers"), py::arg("alpha"),
             py::arg("times"));
  module.def("initial_micro_batches", &pipes::initial_micro_batches, py::arg("stages"));
  module.def("pipeline_bubble", &bubble_of, py::arg("schedule"), py::arg("stages"),
             py::arg("micro_batches"), py::arg("forward"), py::arg("backward"));
}

}  // namespace

void bind_pipeline(py::module_& module) {
  bind_partitions(module);
  py::class_<pipes::ElasticPlan>(module, "ElasticPlan")
      .def(py::init([](const Costs& costs, int stages, const Skips& skips, double slack,
                       double frozen_share, double alpha, bool freeze_last, int embedding_layers,
                       int head_layers, bool freezes, bool shrinks) {
             return pipes::ElasticPlan(costs,
                                       {.stages = stages,
                                        .skips = skips_of(skips),
                                        .slack = slack,
                                        .frozen_share = frozen_share},
                                       {.alpha = alpha,
                                        .last = freeze_last ? pipes::LastLayer::MayFreeze
                                                            : pipes::LastLayer::StaysTrained,
                                        .embedding_layers = embedding_layers,
                                        .head_layers = head_layers,
                                        .freezes = freezes,
                                        .shrinks = shrinks});
           }),
           py::arg("costs"), py::arg("stages"), py::arg("skips"), py::arg("slack"),
           py::arg("frozen_share"), py::arg("alpha"), py::arg("freeze_last"),
           py::arg("embedding_layers"), py::arg("head_layers"), py::arg("freezes"),
           py::arg("shrinks"))
      .def(
          "advance",
          [](pipes::ElasticPlan& plan, const std::vector<double>& norms) {
            const pipes::Arrangement next = plan.advance(norms);
            return std::pair(next.stages, next.frozen);
          },
          py::arg("norms"))
      .def_property_readonly("depth", &pipes::ElasticPlan::depth);
  py::class_<pipes::EpochShares>(module, "EpochShares")
      .def(py::init<std::int64_t, std::int64_t, std::uint64_t>(), py::arg("samples"),
           py::arg("global_batch"), py::arg("seed"))
      .def("begin_epoch", &pipes::EpochShares::begin_epoch, py::arg("epoch"))
      .def_property_readonly("left", &pipes::EpochShares::left)
      .def(
          "next",
          [](pipes::EpochShares& shares, int replicas, int replica) {
            pipes::GlobalBatch batch = shares.next(replicas, replica);
            return std::pair(batch.rows, std::move(batch.samples));
          },
          py::arg("replicas"), py::arg("replica"));
}

}  // namespace bluefog::python
