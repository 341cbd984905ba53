#include <ATen/ops/from_blob.h>
#include <pybind11/stl/filesystem.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "ops/compression.hpp"
#include "optimizers/algorithm_row.hpp"
#include "optimizers/algorithms/registry/algorithm_library.hpp"
#include "optimizers/buckets/backward_passes.hpp"
#include "optimizers/distributed_optimizer.hpp"
#include "python/bindings/bindings.hpp"
#include "python/bindings/local_optimizer.hpp"
#include "python/bindings/named_pairs.hpp"
#include "python/bindings/own/python_object.hpp"
#include "python/bindings/python_owner.hpp"
#include "python/bindings/rethrow.hpp"

namespace bluefog::python {
namespace {

namespace opt = bluefog::optimizers;

const char* stochastic_text(const opt::AlgorithmRow& row) {
  switch (row.mixing.stochastic) {
    case opt::Stochastic::Averages:
      return "averages";
    case opt::Stochastic::Rows:
      return "rows";
    case opt::Stochastic::Columns:
      return "columns";
    case opt::Stochastic::RowsAndColumns:
      return "rows and columns";
    case opt::Stochastic::Any:
      break;
  }
  return "";
}

void bind_algorithm_rows(py::module_& module) {
  using Row = opt::AlgorithmRow;
  py::class_<opt::AlgorithmOption>(module, "AlgorithmOption", "See optimizers/algorithm_row.hpp.")
      .def_readonly("name", &opt::AlgorithmOption::name)
      .def_readonly("default", &opt::AlgorithmOption::default_value)
      .def_readonly("meaning", &opt::AlgorithmOption::meaning);
  py::class_<Row, std::unique_ptr<Row, py::nodelete>>(module, "AlgorithmRow",
                                                      "See optimizers/algorithm_row.hpp.")
      .def_readonly("name", &Row::name)
      .def_readonly("aliases", &Row::aliases)
      .def_readonly("equation", &Row::equation)
      .def_readonly("description", &Row::description)
      .def_readonly("source", &Row::source)
      .def_readonly("overlap", &Row::overlap)
      .def_readonly("options", &Row::options)
      .def_property_readonly("brings_schedule",
                             [](const Row& row) { return !row.own_schedules.empty(); })
      .def(
          "schedule",
          [](const Row& row, const std::string& name, int size, int local_size) {
            return opt::schedule_named(row.name, name, {.size = size, .local_size = local_size});
          },
          py::arg("name"), py::arg("size"), py::arg("local_size") = 1,
          "One of the algorithm's own schedules, or a family of bftopo, by its name.")
      .def_readonly("uses_windows", &Row::uses_windows)
      .def_readonly("begins_in_backward", &Row::begins_in_backward)
      .def_readonly("sums_gradients", &Row::sums_gradients)
      .def_readonly("needs_every_step", &Row::needs_every_step)
      .def_readonly("counts_passes", &Row::counts_passes)
      .def_readonly("allows_reevaluation", &Row::allows_reevaluation)
      .def_property_readonly("copies", [](const Row& row) { return row.memory.copies; })
      .def_property_readonly("copies_per_source",
                             [](const Row& row) { return row.memory.copies_per_source; })
      .def_property_readonly("memory_note", [](const Row& row) { return row.memory.note; })
      .def_property_readonly("carried", [](const Row& row) { return row.memory.carried; })
      .def_property_readonly("conserved", [](const Row& row) { return row.memory.conserved; })
      .def_property_readonly("stochastic", &stochastic_text)
      .def_property_readonly("is_symmetric", [](const Row& row) { return row.mixing.is_symmetric; })
      .def_property_readonly("is_fixed", [](const Row& row) { return row.mixing.is_fixed; })
      .def_property_readonly("eigenvalues_above",
                             [](const Row& row) {
                               const auto& bound = row.mixing.eigenvalues_above;
                               return bound ? bound->text : std::string();
                             })
      .def_property_readonly("mixing_note", [](const Row& row) { return row.mixing.note; })
      .def("reads", &Row::reads, py::arg("option"));
  module.def(
      "algorithms", [] { return opt::algorithms(); }, py::return_value_policy::reference,
      "The rows of all registered algorithms.");
  module.def(
      "algorithm_named",
      [](const std::string& name) { return &opt::row_of(opt::AlgorithmName(name)); },
      py::arg("name"), py::return_value_policy::reference);
  module.def("load_algorithms", &opt::load_algorithms, py::arg("path"), WithoutGil(),
             "See optimizers/algorithms/registry/algorithm_library.hpp.");
}

/// A distributed optimizer with the local step that it stands on.
struct PythonOptimizer {
  PythonOptimizer(std::shared_ptr<Context> context,
                  const std::vector<std::vector<at::Tensor>>& groups, py::function step,
                  const NamedPairs& parameters, const opt::DistributedOptimizerOptions& options)
      : local(groups, std::move(step)), reevaluates(options.reevaluates) {
    const py::gil_scoped_release released;
    distributed = std::make_unique<opt::DistributedOptimizer>(std::move(context), local,
                                                              named_tensors(parameters), options);
  }

  void step() {
    if (reevaluates) {
      distributed->step([] { return at::Tensor(); });  // `local` has the closure from Python
    } else {
      distributed->step();
    }
  }

  LocalOptimizer local;
  bool reevaluates = false;
  /// Notes the pass under way. @return whether it is one that adds to gradients, and was not noted.
  bool begins_pass(const at::Tensor& parameter) {
    if (!opt::accumulates_into(parameter)) {
      return false;
    }
    const opt::BackwardPasses::Noted noted = passes.note();
    repeats_pass = noted.is_first ? noted.follows_failure : repeats_pass;
    return noted.is_first;
  }

  opt::BackwardPasses passes;
  bool repeats_pass = false;
  std::unique_ptr<opt::DistributedOptimizer> distributed;
};

std::shared_ptr<PythonOptimizer> make_optimizer(
    std::shared_ptr<Context> context, const std::vector<std::vector<at::Tensor>>& groups,
    py::function step, const NamedPairs& parameters, const std::string& algorithm,
    std::int64_t num_steps_per_communication, bool by_bucket, bool reevaluates,
    const std::optional<Schedule>& schedule, std::int64_t global_period_rounds, double momentum,
    std::int64_t bucket_bytes, bool step_in_backward, const std::map<std::string, double>& numbers,
    opt::RowSums row_sums, const std::shared_ptr<ops::Compression>& compression,
    const std::optional<std::string>& schedule_name, const std::string& call_name,
    py::object learning_rate, py::object moments) {
  opt::DistributedOptimizerOptions options;
  options.call_name = call_name;
  options.row_sums = row_sums;
  options.schedule = schedule;
  if (schedule_name) {
    options.make_schedule = [name = *schedule_name, algorithm](const Context& other) {
      return in_python([&] {
        return py::module_::import("bluefog_cpp.torch._own.schedules")
            .attr("schedule_named")(algorithm, name, other.size(), other.local_size())
            .cast<Schedule>();
      });
    };
  }
  options.learning_rate = [rate = std::make_shared<PythonObject>(std::move(learning_rate))] {
    return in_python([&] { return rate->get()().cast<double>(); });
  };
  if (!moments.is_none()) {
    options.moments =
        [of = std::make_shared<PythonObject>(std::move(moments))](const at::Tensor& parameter) {
          return in_python([&] {
            auto [first, second] =
                of->get()(parameter)
                    .cast<std::pair<std::optional<at::Tensor>, std::optional<at::Tensor>>>();
            return opt::ParameterMoments{.first = first.value_or(at::Tensor()),
                                         .second = second.value_or(at::Tensor())};
          });
        };
  }
  options.global_period_rounds = global_period_rounds;
  options.momentum = momentum;
  options.bucket_bytes = bucket_bytes;
  options.step_in_backward = step_in_backward;
  options.algorithm = algorithm;
  options.numbers.insert(numbers.begin(), numbers.end());
  options.compression = compression;
  options.num_steps_per_communication = num_steps_per_communication;
  options.reevaluates = reevaluates;
  options.rethrow_in_backward = rethrow_through_torch;
  options.on_failure = OnFailure::Raise;       // Python moves all that it has to the smaller group
  options.share_state = [](Context&, int) {};  // likewise
  options.stepping = by_bucket ? opt::Stepping::ByBucket : opt::Stepping::Whole;
  return owned_by_python(std::make_shared<PythonOptimizer>(std::move(context), groups,
                                                           std::move(step), parameters, options));
}

// The buckets' flat memory, as tensors that share it.
std::vector<at::Tensor> bucket_values(const PythonOptimizer& optimizer) {
  std::vector<at::Tensor> tensors;
  for (const opt::Bucket& bucket : optimizer.distributed->buckets()) {
    const BufferView values = bucket.values();
    tensors.push_back(at::from_blob(
        values.data, {values.count}, [owner = values.owner](void* /*data*/) {},
        bucket.segments().front().parameter.options().requires_grad(false),
        bucket.flat().device()));
  }
  return tensors;
}

using TensorsByName = std::map<std::string, at::Tensor>;

opt::NamedTensors named(const TensorsByName& tensors) {
  opt::NamedTensors named;
  for (const auto& [name, tensor] : tensors) {
    named.push_back({name, tensor});
  }
  return named;
}

}  // namespace

void bind_optimizers(py::module_& module) {
  bind_algorithm_rows(module);
  py::enum_<opt::Averaging>(module, "Averaging", "Over whom a round averages.")
      .value("neighbors", opt::Averaging::Neighbors)
      .value("machines", opt::Averaging::Machines)
      .value("everybody", opt::Averaging::Everybody)
      .value("nobody", opt::Averaging::Nobody);
  module.def(
      "compression_named",
      [](const std::string& name) {
        return std::const_pointer_cast<ops::Compression>(ops::compression_named(name));
      },
      py::arg("name"), "A code of ops/compression.hpp by its name.");
  py::enum_<opt::RowSums>(module, "RowSums", "What rows of W sum to. See optimizers/row_sums.hpp.")
      .value("one", opt::RowSums::One)
      .value("any", opt::RowSums::Any);

  py::class_<PythonOptimizer, std::shared_ptr<PythonOptimizer>>(
      module, "DistributedOptimizer",
      "An algorithm over a Python optimizer. See optimizers/distributed_optimizer.hpp.")
      .def(
          py::init(&make_optimizer), py::arg("context"), py::arg("groups"), py::arg("step"),
          py::arg("parameters"), py::arg("algorithm"), py::arg("num_steps_per_communication"),
          py::arg("by_bucket"), py::arg("reevaluates"), py::arg("schedule") = py::none(),
          py::arg("global_period_rounds") = opt::DistributedOptimizerOptions{}.global_period_rounds,
          py::arg("momentum") = opt::DistributedOptimizerOptions{}.momentum,
          py::arg("bucket_bytes") = opt::DistributedOptimizerOptions{}.bucket_bytes,
          py::arg("step_in_backward") = false, py::arg("numbers") = std::map<std::string, double>(),
          py::arg("row_sums") = opt::RowSums::One, py::arg("compression") = py::none(),
          py::arg("schedule_name") = py::none(),
          py::arg("call_name") = opt::DistributedOptimizerOptions{}.call_name,
          py::arg("learning_rate") = py::none(), py::arg("moments") = py::none())
      .def(
          "step", [](PythonOptimizer& o) { o.step(); }, WithoutGil())
      .def(
          "zero_grad",
          [](PythonOptimizer& o, bool set_to_none) { o.distributed->zero_grad(set_to_none); },
          py::arg("set_to_none"), WithoutGil())
      .def(
          "begins_pass",
          [](PythonOptimizer& o, const at::Tensor& parameter) { return o.begins_pass(parameter); },
          py::arg("parameter"),
          "From a hook of the parameter: whether it is the first of a backward pass that adds to "
          "gradients. Passes inside of another one count with it.")
      .def_readonly("repeats_pass", &PythonOptimizer::repeats_pass,
                    "Whether the pass before the one that begins_pass has told of has failed.")
      .def("forget_lost_step", [](PythonOptimizer& o) { o.distributed->forget_lost_step(); })
      .def(
          "drain", [](PythonOptimizer& o) { o.distributed->drain(); }, WithoutGil())
      .def(
          "refuse_step",
          [](PythonOptimizer& o, const std::string& reason) { o.distributed->refuse_step(reason); },
          py::arg("reason"), WithoutGil())
      .def(
          "restart", [](PythonOptimizer& o) { o.distributed->restart(); }, WithoutGil())
      .def(
          "check_carried",
          [](const PythonOptimizer& o, const TensorsByName& carried) {
            o.distributed->check_carried(named(carried));
          },
          py::arg("carried"))
      .def("carried",
           [](const PythonOptimizer& o) {
             std::vector<std::pair<std::string, at::Tensor>> carried;
             for (const auto& [name, tensor] : o.distributed->carried()) {
               carried.emplace_back(name, tensor);
             }
             return carried;
           })
      .def(
          "resume",
          [](PythonOptimizer& o, const TensorsByName& carried, std::int64_t step_count,
             std::int64_t round_count) {
            o.distributed->resume(named(carried), step_count, round_count);
          },
          py::arg("carried"), py::arg("step_count"), py::arg("round_count"), WithoutGil())
      .def(
          "move_to",
          [](PythonOptimizer& o, std::shared_ptr<Context> other) {
            return o.distributed->move_to(std::move(other));
          },
          py::arg("other"), WithoutGil(),
          "Collective over the ranks of `other`, which shrink or regroup has made. Returns the "
          "furthest of them.")
      .def("ask_to_leave", [](PythonOptimizer& o) { o.distributed->ask_to_leave(); })
      .def(
          "begin_to_give_up",
          [](PythonOptimizer& o, const std::string& why) {
            return o.distributed->begin_to_give_up(why);
          },
          py::arg("why"), WithoutGil(),
          "Tells the others that this rank's program cannot go on; steps make no local ones from "
          "here on. Returns whether its values are finite.")
      .def("is_departure", [](PythonOptimizer& o) { return o.distributed->is_departure(); })
      .def(
          "share_before_departure",
          [](PythonOptimizer& o) { o.distributed->share_before_departure(); }, WithoutGil(),
          "Collective: parameters become the mean of all ranks, before one of them leaves.")
      .def(
          "meeting_is_due",
          [](PythonOptimizer& o, bool may_be_called) {
            return o.distributed->meeting_is_due(may_be_called);
          },
          py::arg("may_be_called"), WithoutGil(),
          "Whether the ranks meet after this step, to take in a process that waits.")
      .def(
          "set_next_plan",
          [](PythonOptimizer& o, const NeighborPlan& plan, bool checked) {
            o.distributed->set_next_plan(
                plan, checked ? ops::PlanCheck::Checked : ops::PlanCheck::Trusted);
          },
          py::arg("plan"), py::arg("checked"))
      .def(
          "set_averaging",
          [](PythonOptimizer& o, opt::Averaging averaging) {
            o.distributed->set_averaging(averaging);
          },
          py::arg("averaging"))
      .def(
          "skip_steps",
          [](PythonOptimizer& o, std::int64_t count) { o.distributed->skip_steps(count); },
          py::arg("count"))
      .def(
          "late_ranks",
          [](const PythonOptimizer& o) {
            py::list late;
            for (const opt::LateRank& rank : o.distributed->late_ranks()) {
              late.append(py::make_tuple(rank.rank, rank.rounds, rank.rounds_without, rank.oldest));
            }
            return late;
          })
      .def("abandon", &abandon<PythonOptimizer>)
      .def("bucket_values", &bucket_values)
      .def("note_changes",
           [](PythonOptimizer& o) {
             for (const opt::Bucket& bucket : o.distributed->buckets()) {
               bucket.note_change();
             }
           })
      .def_property_readonly("step_count",
                             [](const PythonOptimizer& o) { return o.distributed->step_count(); })
      .def_property_readonly("round_count",
                             [](const PythonOptimizer& o) { return o.distributed->round_count(); })
      .def_property_readonly(
          "bucket_count", [](const PythonOptimizer& o) { return o.distributed->buckets().size(); });
}

}  // namespace bluefog::python
