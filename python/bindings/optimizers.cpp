#include <ATen/ops/from_blob.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "ops/calls/allgather_parts.hpp"
#include "optimizers/checks/agreement.hpp"
#include "optimizers/distributed_optimizer.hpp"
#include "optimizers/parameter_collectives.hpp"
#include "python/bindings/bindings.hpp"
#include "python/bindings/local_optimizer.hpp"
#include "python/bindings/python_owner.hpp"
#include "python/bindings/rethrow.hpp"

namespace bluefog::python {
namespace {

namespace opt = bluefog::optimizers;

using NamedPairs = std::vector<std::pair<std::string, at::Tensor>>;

opt::NamedTensors named_tensors(const NamedPairs& pairs) {
  opt::NamedTensors tensors;
  for (const auto& [name, tensor] : pairs) {
    tensors.push_back({name, tensor});
  }
  return tensors;
}

std::vector<std::string> algorithm_names() {
  std::vector<std::string> names;
  for (int i = 0; i <= static_cast<int>(opt::AlgorithmKind::AsyncPushSum); ++i) {
    names.emplace_back(opt::name_of(static_cast<opt::AlgorithmKind>(i)));
  }
  return names;
}

opt::AlgorithmKind algorithm_of(const std::string& name) {
  const std::vector<std::string> names = algorithm_names();
  const auto found = std::ranges::find(names, name);
  if (found != names.end()) {
    return static_cast<opt::AlgorithmKind>(found - names.begin());
  }
  throw InvalidArgument(
      fmt::format("algorithm: expected one of {}, found '{}'", fmt::join(names, ", "), name));
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
  std::unique_ptr<opt::DistributedOptimizer> distributed;
};

std::shared_ptr<PythonOptimizer> make_optimizer(std::shared_ptr<Context> context,
                                                const std::vector<std::vector<at::Tensor>>& groups,
                                                py::function step, const NamedPairs& parameters,
                                                const std::string& algorithm,
                                                std::int64_t num_steps_per_communication,
                                                bool by_bucket, bool reevaluates,
                                                const std::optional<Schedule>& schedule,
                                                std::int64_t global_period_rounds, double momentum,
                                                std::int64_t bucket_bytes, bool step_in_backward) {
  opt::DistributedOptimizerOptions options;
  options.schedule = schedule;
  options.global_period_rounds = global_period_rounds;
  options.momentum = momentum;
  options.bucket_bytes = bucket_bytes;
  options.step_in_backward = step_in_backward;
  options.algorithm = algorithm_of(algorithm);
  options.num_steps_per_communication = num_steps_per_communication;
  options.reevaluates = reevaluates;
  options.rethrow_in_backward = rethrow_through_torch;
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

void bind_parameter_collectives(py::module_& module) {
  module.def(
      "check_ranks_agree",
      [](Context& context, const std::string& subject, std::vector<std::string> lines,
         const std::string& problem) {
        opt::check_ranks_agree(context, subject, {.lines = std::move(lines), .problem = problem});
      },
      py::arg("context"), py::arg("subject"), py::arg("lines"), py::arg("problem"), WithoutGil(),
      "Collective. See optimizers/checks/agreement.hpp.");
  module.def(
      "broadcast_tensors",
      [](Context& context, const NamedPairs& tensors, int root, const std::string& call) {
        opt::broadcast(context, named_tensors(tensors), root, call);
      },
      py::arg("context"), py::arg("tensors"), py::arg("root"), py::arg("call"), WithoutGil());
  module.def(
      "average_tensors",
      [](Context& context, const NamedPairs& tensors, const std::string& call) {
        opt::average_floating(context, named_tensors(tensors), call);
      },
      py::arg("context"), py::arg("tensors"), py::arg("call"), WithoutGil());
  module.def(
      "gather_bytes",
      [](Context& context, const std::string& call, const py::bytes& own) {
        const std::string text = own;
        std::vector<std::string> all;
        {
          const py::gil_scoped_release released;
          all = ops::allgather_parts(context, call, text);
        }
        py::list parts;
        for (const std::string& part : all) {
          parts.append(py::bytes(part));
        }
        return parts;
      },
      py::arg("context"), py::arg("call"), py::arg("own"),
      "Collective. What each rank passed, by rank; `call` is the user's call, for messages.");
}

}  // namespace

void bind_optimizers(py::module_& module) {
  module.attr("algorithms") = algorithm_names();
  py::enum_<opt::Averaging>(module, "Averaging", "Over whom a round averages.")
      .value("neighbors", opt::Averaging::Neighbors)
      .value("machines", opt::Averaging::Machines)
      .value("everybody", opt::Averaging::Global)
      .value("nobody", opt::Averaging::Nobody);

  py::class_<PythonOptimizer, std::shared_ptr<PythonOptimizer>>(
      module, "DistributedOptimizer",
      "An algorithm over a Python optimizer. See optimizers/distributed_optimizer.hpp.")
      .def(py::init(&make_optimizer), py::arg("context"), py::arg("groups"), py::arg("step"),
           py::arg("parameters"), py::arg("algorithm"), py::arg("num_steps_per_communication"),
           py::arg("by_bucket"), py::arg("reevaluates"), py::arg("schedule") = py::none(),
           py::arg("global_period_rounds") = opt::DistributedOptimizerOptions{}.global_period_rounds,
           py::arg("momentum") = opt::DistributedOptimizerOptions{}.momentum,
           py::arg("bucket_bytes") = opt::DistributedOptimizerOptions{}.bucket_bytes,
           py::arg("step_in_backward") = false)
      .def(
          "step", [](PythonOptimizer& o) { o.step(); }, WithoutGil())
      .def(
          "zero_grad",
          [](PythonOptimizer& o, bool set_to_none) { o.distributed->zero_grad(set_to_none); },
          py::arg("set_to_none"), WithoutGil())
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
  bind_parameter_collectives(module);
}

}  // namespace bluefog::python
