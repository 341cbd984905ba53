#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "python/bindings/bindings.hpp"
#include "topology/edge_list.hpp"
#include "topology/families.hpp"
#include "topology/lazy_mixing.hpp"
#include "topology/machines_without.hpp"
#include "topology/mixing_matrix.hpp"
#include "topology/neighbor_plan.hpp"
#include "topology/plan_builder.hpp"
#include "topology/schedule.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::python {
namespace {

using Edge = std::tuple<int, int, double>;
using Weights = std::map<int, double>;

std::vector<WeightedEdge> weighted_edges(const std::vector<Edge>& edges) {
  std::vector<WeightedEdge> result;
  result.reserve(edges.size());
  for (const auto& [source, destination, weight] : edges) {
    result.push_back({.source = source, .destination = destination, .weight = weight});
  }
  return result;
}

std::vector<Edge> edges_of(const MixingMatrix& matrix) {
  std::vector<Edge> edges;
  for (int i = 0; i < matrix.size(); ++i) {
    for (const WeightedRank& entry : matrix.row(i)) {
      edges.emplace_back(entry.rank, i, entry.weight);
    }
  }
  return edges;
}

Weights to_map(const std::vector<WeightedRank>& ranks) {
  Weights weights;
  for (const WeightedRank& item : ranks) {
    weights[item.rank] = item.weight;
  }
  return weights;
}

std::vector<int> ranks_of(const std::vector<WeightedRank>& weighted) {
  std::vector<int> ranks;
  for (const WeightedRank& item : weighted) {
    ranks.push_back(item.rank);
  }
  return ranks;
}

NeighborPlan make_plan(int rank, int size, double self_weight, const Weights& src_weights,
                       const Weights& dst_weights) {
  return build_plan(
      rank, size,
      {.self_weight = self_weight, .src_weights = src_weights, .dst_weights = dst_weights});
}

std::optional<topology::GridShape> shape_of(const std::optional<std::pair<int, int>>& shape) {
  if (!shape) {
    return std::nullopt;
  }
  return topology::GridShape{.rows = shape->first, .columns = shape->second};
}

topology::RingStyle ring_style(int connect_style) {
  switch (connect_style) {
    case 0:
      return topology::RingStyle::Both;
    case 1:
      return topology::RingStyle::Left;
    case 2:
      return topology::RingStyle::Right;
    default:
      throw InvalidArgument("connect_style: expected 0 (both), 1 (left) or 2 (right), found " +
                            std::to_string(connect_style));
  }
}

void bind_graphs(py::module_& module) {
  py::module_ graphs = module.def_submodule("graphs", "Static graphs, as mixing matrices.");
  graphs.def("exponential", &topology::exponential, py::arg("size"), py::arg("base") = 2);
  graphs.def("symmetric_exponential", &topology::symmetric_exponential, py::arg("size"),
             py::arg("base") = 4);
  graphs.def(
      "ring",
      [](int size, int connect_style) { return topology::ring(size, ring_style(connect_style)); },
      py::arg("size"), py::arg("connect_style") = 0);
  graphs.def(
      "mesh_2d",
      [](int size, const std::optional<std::pair<int, int>>& shape) {
        return topology::mesh_2d(size, shape_of(shape));
      },
      py::arg("size"), py::arg("shape") = py::none());
  graphs.def("star", &topology::star, py::arg("size"), py::arg("center") = 0);
  graphs.def("fully_connected", &topology::fully_connected, py::arg("size"));
}

MixingMatrix machines_without(const MixingMatrix& machines, const std::vector<int>& machine_of,
                              const std::vector<int>& ranks) {
  std::vector<std::string> ids;
  for (const int machine : machine_of) {
    ids.push_back(std::to_string(machine));
  }
  return topology::machines_without(machines, MachineLayout::from_host_ids(ids), ranks);
}

void bind_lazy_mixing(py::module_& module) {
  module.def("lazy", &topology::lazy, py::arg("matrix"), py::arg("self_share") = 0.5,
             "self_share I + (1 - self_share) W.");
}

/// @tparam Mixing `MixingMatrix` or `Schedule`.
template <typename Mixing>
void bind_lost_ranks(py::class_<Mixing>& type) {
  using Ranks = std::vector<int>;
  type.def(
          "without", [](const Mixing& all, const Ranks& ranks) { return all.without(ranks); },
          py::arg("ranks"), "The same after these ranks are lost; they stand alone.")
      .def(
          "among", [](const Mixing& all, const Ranks& ranks) { return all.among(ranks); },
          py::arg("ranks"), "The part of these ranks, numbered anew by rising rank.");
}

void bind_schedules(py::module_& module) {
  py::class_<Schedule> type(module, "Schedule", "The mixing matrix of each step, by turns.");
  type.def_property_readonly("size", &Schedule::size)
      .def_property_readonly("period_steps", &Schedule::period_steps)
      .def("mixing_matrix", &Schedule::mixing_matrix, py::arg("step"), WithoutGil())
      .def(
          "plan_for",
          [](const Schedule& schedule, int rank, std::int64_t step) {
            return *schedule.plan_for(rank, step);
          },
          py::arg("rank"), py::arg("step"), WithoutGil());
  bind_lost_ranks(type);
  module.def(
      "load_edge_list",
      [](const std::string& path, int size) {
        return topology::load_edge_list(path, {.size = size});
      },
      py::arg("path"), py::arg("size"), "The graph of a file; size 0: that of its highest rank.");
  module.def("static_schedule", &topology::static_schedule, py::arg("matrix"));
  module.def("cycle", &topology::cycle, py::arg("matrices"));
  module.def("one_peer", &topology::one_peer, py::arg("graph"));
  module.def(
      "make_schedule",
      [](const std::string& name, int size, int local_size) {
        return topology::make_schedule(name, {.size = size, .local_size = local_size});
      },
      py::arg("name"), py::arg("size"), py::arg("local_size") = 1,
      "A family of bftopo by its name.");
}

}  // namespace

void bind_topology(py::module_& module) {
  py::class_<NeighborPlan, std::shared_ptr<NeighborPlan>>(module, "NeighborPlan",
                                                          "One rank's part of one averaging step.")
      .def(py::init(&make_plan), py::arg("rank"), py::arg("size"), py::arg("self_weight"),
           py::arg("src_weights"), py::arg("dst_weights"))
      .def_readonly("rank", &NeighborPlan::rank)
      .def_readonly("size", &NeighborPlan::size)
      .def_readonly("self_weight", &NeighborPlan::self_weight)
      .def_readwrite("graph", &NeighborPlan::graph)
      .def(
          "take_graph",
          [](NeighborPlan& plan, const NeighborPlan& from) {
            plan.graph = from.graph;
            plan.step = from.step;
          },
          py::arg("of"), "Makes it a plan of the same graph, whose edges it has.")
      .def_property_readonly("src_weights",
                             [](const NeighborPlan& plan) { return to_map(plan.sources); })
      .def_property_readonly("dst_weights",
                             [](const NeighborPlan& plan) { return to_map(plan.destinations); })
      .def_property_readonly("src_ranks",
                             [](const NeighborPlan& plan) { return ranks_of(plan.sources); })
      .def_property_readonly("dst_ranks",
                             [](const NeighborPlan& plan) { return ranks_of(plan.destinations); });

  py::class_<MixingMatrix> type(module, "MixingMatrix", "W of one averaging step x <- W x.");
  type.def(py::init([](int size, const std::vector<Edge>& edges) {
             return MixingMatrix::from_edges(size, weighted_edges(edges));
           }),
           py::arg("size"), py::arg("edges"), "edges: (source, destination, weight).")
      .def_static(
          "uniform",
          [](int size, const std::vector<Edge>& edges) {
            return topology::from_unweighted_edges(size, weighted_edges(edges),
                                                   topology::WeightRule::Uniform);
          },
          py::arg("size"), py::arg("edges"), "Weights 1 / (1 + in-degree), whatever the edges say.")
      .def_property_readonly("size", &MixingMatrix::size)
      .def_property_readonly("edges", &edges_of)
      .def("plan_for", &MixingMatrix::plan_for, py::arg("rank"))
      .def("in_neighbors", &MixingMatrix::in_neighbors, py::arg("rank"))
      .def("out_neighbors", &MixingMatrix::out_neighbors, py::arg("rank"))
      .def("keeps_mean", &MixingMatrix::keeps_mean, py::arg("tolerance") = 1e-9);
  bind_lost_ranks(type);
  type.def("machines_without", &machines_without, py::arg("machine_of"), py::arg("ranks"),
           "See topology/machines_without.hpp; machine_of: by rank, of a W of machines.");
  bind_graphs(module);
  bind_lazy_mixing(module);
  bind_schedules(module);
}

}  // namespace bluefog::python
