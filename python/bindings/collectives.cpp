#include "ops/collectives.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/sum.h>
#include <c10/core/StreamGuard.h>
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ops/calls/validation.hpp"
#include "ops/hierarchical_neighbor_allreduce.hpp"
#include "ops/neighbor_allgather.hpp"
#include "ops/neighbor_allreduce.hpp"
#include "ops/neighbor_allreduce_multi.hpp"
#include "ops/pair_gossip.hpp"
#include "optimizers/parameter.hpp"
#include "python/bindings/bindings.hpp"
#include "python/bindings/prepared_average.hpp"
#include "python/bindings/result_memory.hpp"
#include "python/bindings/tensor_view.hpp"

namespace bluefog::python {
namespace {

using Plan = std::shared_ptr<NeighborPlan>;

/// @param is_copy what Python's tensor holds stands elsewhere too.
ops::BufferUse use_of(bool is_copy) {
  return is_copy ? ops::BufferUse::Copy : ops::BufferUse::Values;
}

ops::PlanCheck check_of(bool checked) {
  return checked ? ops::PlanCheck::Checked : ops::PlanCheck::Trusted;
}

// Views of a call's tensors; a call whose tensor has no view counts as refused.
template <typename... Tensors>
std::vector<BufferView> views_of(Context& context, const Tensors&... tensors) {
  std::vector<BufferView> views;
  ops::validate(context, [&] { (views.push_back(view_of(tensors)), ...); });
  return views;
}

at::Tensor shared_zeros(Context& context, const std::vector<std::int64_t>& sizes,
                        const at::Tensor& like) {
  const auto count = static_cast<std::size_t>(c10::multiply_integers(sizes));
  auto memory = context.allocate_shared(count * like.element_size());
  void* const data = memory.get();
  return at::from_blob(
      data, sizes, [memory = std::move(memory)](void*) {}, like.options());
}

// ---- averages

template <typename Run>
auto run_neighbor_allreduce(Context& context, const at::Tensor& input, const at::Tensor& output,
                            const Plan& plan, bool checked, const std::string& name,
                            std::string_view synchronisation, Run&& run) {
  auto views = views_of(context, input, output);
  const ops::NeighborAllreduceOptions options{.name = named(name, input),
                                              .check = check_of(checked),
                                              .synchronisation = choice_of(synchronisation)};
  return run(views[0], views[1], plan, options);
}

Work start_neighbor_allreduce(Context& context, const at::Tensor& input, const at::Tensor& output,
                              const Plan& plan, bool checked, const std::string& name,
                              std::string_view synchronisation) {
  return run_neighbor_allreduce(
      context, input, output, plan, checked, name, synchronisation,
      [&](const BufferView& in, const BufferView& out, const auto& p, const auto& options) {
        return in.data == out.data
                   ? ops::neighbor_allreduce_nonblocking(context, out, p, options)
                   : ops::neighbor_allreduce_nonblocking(context, in, out, p, options);
      });
}

void neighbor_allreduce(Context& context, const at::Tensor& input, const at::Tensor& output,
                        const Plan& plan, bool checked, const std::string& name,
                        std::string_view synchronisation) {
  run_neighbor_allreduce(
      context, input, output, plan, checked, name, synchronisation,
      [&](const BufferView& in, const BufferView& out, const auto& p, const auto& options) {
        if (in.data == out.data) {
          ops::neighbor_allreduce(context, out, p, options);
        } else {
          ops::neighbor_allreduce(context, in, out, p, options);
        }
      });
}

void neighbor_allreduce_multi(Context& context, const std::vector<at::Tensor>& tensors,
                              const Plan& plan, bool checked, const std::string& name,
                              std::string_view synchronisation) {
  std::vector<BufferView> views;
  ops::validate(context, [&] {
    for (const at::Tensor& tensor : tensors) {
      views.push_back(view_of(tensor));
    }
  });
  ops::neighbor_allreduce_multi(
      context, views, plan,
      {.name = name, .check = check_of(checked), .synchronisation = choice_of(synchronisation)});
  for (const at::Tensor& tensor : tensors) {
    note_change(tensor);
  }
}

Work start_hierarchical(Context& context, const at::Tensor& buffer, const Plan& machine_plan,
                        bool checked, const std::string& name) {
  const auto views = views_of(context, buffer);
  return ops::hierarchical_neighbor_allreduce_nonblocking(
      context, views[0], machine_plan,
      {.name = named(name, buffer),
       .check = check_of(checked),
       .buffer = ops::BufferUse::Copy});  // there is no form in place
}

Work start_pair_gossip(Context& context, const at::Tensor& input, const at::Tensor& output,
                       int target, double self_weight, double pair_weight,
                       const std::string& name) {
  BufferView in;
  BufferView out;
  ops::validate(
      context,
      [&] {
        in = view_of(input);
        out = view_of(output);
      },
      target);
  return ops::pair_gossip_nonblocking(
      context, in, out, target,
      {.name = named(name, input), .self_weight = self_weight, .pair_weight = pair_weight});
}

Work start_allreduce(Context& context, const at::Tensor& buffer, bool average, bool in_machine,
                     const std::string& name, bool is_copy) {
  const auto views = views_of(context, buffer);
  return ops::allreduce_nonblocking(
      context, views[0],
      {.name = named(name, buffer),
       .reduction = average ? ops::Reduction::Average : ops::Reduction::Sum,
       .scope = in_machine ? ops::Scope::Machine : ops::Scope::Global,
       .buffer = use_of(is_copy)});
}

Work start_broadcast(Context& context, const at::Tensor& buffer, int root, const std::string& name,
                     bool is_copy) {
  const auto views = views_of(context, buffer);
  return ops::broadcast_nonblocking(context, views[0], root,
                                    {.name = named(name, buffer), .buffer = use_of(is_copy)});
}

// ---- gathers

/// A gather in flight, and the tensor that it makes on the way.
struct GatherWork {
  Work work;
  std::shared_ptr<at::Tensor> gathered = std::make_shared<at::Tensor>();
  /// The shape of this rank's rows if empty: `gathered` then holds the row counts of all ranks.
  std::optional<at::Tensor> empty_rows{};

  /// The gathered tensor, once the call has done its work.
  [[nodiscard]] at::Tensor result() const {
    if (!empty_rows) {
      return *gathered;
    }
    std::vector<std::int64_t> shape = empty_rows->sizes().vec();
    shape[0] = at::sum(*gathered).item<std::int64_t>();
    return fresh_tensor(shape, empty_rows->scalar_type());
  }

  [[nodiscard]] at::Tensor wait() const {
    optimizers::wait_on_current_stream(work);
    return result();
  }
};

// One row for each index of the first dimension; a 0-d tensor is one row of one element.
std::int64_t row_count(const at::Tensor& tensor) {
  std::int64_t count = 1;
  for (std::int64_t d = 1; d < tensor.dim(); ++d) {
    count *= tensor.size(d);
  }
  return count;
}

// The engine calls the result, and the interpreter's lock must not hold it up: plain ATen.
ops::AllocateGathered allocate_into(const std::shared_ptr<at::Tensor>& result,
                                    const at::Tensor& input) {
  std::vector<std::int64_t> shape = input.sizes().vec();
  if (shape.empty()) {
    shape.push_back(1);
  }
  return [result, shape = std::move(shape), row = row_count(input),
          options = input.options().requires_grad(false),
          stream = current_stream(input)](const std::vector<std::int64_t>& counts) mutable {
    shape[0] = 0;
    for (const std::int64_t count : counts) {
      shape[0] += count / row;
    }
    if (options.device().is_cpu()) {
      *result = fresh_tensor(shape, c10::typeMetaToScalarType(options.dtype()));
      return view_of(*result);
    }
    const c10::StreamGuard callers(*stream);  // not that of the engine's thread
    *result = at::empty(shape, options);
    return view_of(*result);
  };
}

// Starts a gather by `start(rows, allocate, name)`. Elements cannot tell how many empty rows there
// are: the ranks then exchange the numbers of rows.
template <typename Start>
GatherWork start_gather(Context& context, const at::Tensor& input, const std::string& name,
                        Start&& start) {
  GatherWork gather;
  at::Tensor sent = input;
  std::string full_name = named(name, input, 1);
  if (row_count(input) == 0) {
    gather.empty_rows = input.detach();
    sent = at::full({1}, input.size(0), at::kLong);
    full_name += fmt::format(" of {}", c10::toString(input.scalar_type()));
  }
  const auto views = views_of(context, sent);
  gather.work = start(views[0], allocate_into(gather.gathered, sent), full_name);
  return gather;
}

GatherWork start_allgather(Context& context, const at::Tensor& input, const std::string& name) {
  return start_gather(context, input, name,
                      [&](const BufferView& rows, auto allocate, const std::string& full_name) {
                        return ops::allgather_nonblocking(context, rows, std::move(allocate),
                                                          {.name = full_name});
                      });
}

GatherWork start_neighbor_allgather(Context& context, const at::Tensor& input, const Plan& plan,
                                    bool checked, const std::string& name,
                                    const std::vector<int>& order) {
  return start_gather(context, input, name,
                      [&](const BufferView& rows, auto allocate, const std::string& full_name) {
                        return ops::neighbor_allgather_nonblocking(
                            context, rows, std::move(allocate), plan,
                            {.name = full_name, .check = check_of(checked), .order = order});
                      });
}

}  // namespace

void bind_collectives(py::module_& module) {
  const auto context = py::arg("context");
  const auto name = py::arg("name");
  const auto synchronisation = py::arg("synchronisation") = "auto";
  module.def("neighbor_allreduce", &neighbor_allreduce, context, py::arg("input"),
             py::arg("output"), py::arg("plan"), py::arg("checked"), name, synchronisation,
             WithoutGil());
  module.def("start_neighbor_allreduce", &start_neighbor_allreduce, context, py::arg("input"),
             py::arg("output"), py::arg("plan"), py::arg("checked"), name, synchronisation,
             WithoutGil());
  module.def("neighbor_allreduce_multi", &neighbor_allreduce_multi, context, py::arg("tensors"),
             py::arg("plan"), py::arg("checked"), name, synchronisation, WithoutGil());
  py::class_<PreparedAverage>(module, "PreparedAverage", py::release_gil_before_calling_cpp_dtor(),
                              "Calls of `neighbor_allreduce` in place on one tensor.")
      .def(py::init<std::shared_ptr<Context>, at::Tensor, const std::string&, std::string_view>(),
           context, py::arg("tensor"), name, py::arg("synchronisation"))
      .def("run", &PreparedAverage::run, py::arg("plan"), py::arg("checked"), WithoutGil());
  module.def("start_hierarchical_neighbor_allreduce", &start_hierarchical, context,
             py::arg("buffer"), py::arg("machine_plan"), py::arg("checked"), name, WithoutGil());
  module.def("start_pair_gossip", &start_pair_gossip, context, py::arg("input"), py::arg("output"),
             py::arg("target"), py::arg("self_weight"), py::arg("pair_weight"), name, WithoutGil());
  module.def("start_allreduce", &start_allreduce, context, py::arg("buffer"), py::arg("average"),
             py::arg("in_machine"), name, py::arg("is_copy"), WithoutGil());
  module.def("start_broadcast", &start_broadcast, context, py::arg("buffer"), py::arg("root"), name,
             py::arg("is_copy"), WithoutGil());

  module.def("shared_zeros", &shared_zeros, context, py::arg("sizes"), py::arg("like"),
             WithoutGil());
  module.def("fresh_like", &fresh_like, py::arg("tensor"), WithoutGil());
  module.def("is_plain", &is_plain, py::arg("tensor"), "Whether calls take the tensor as it is.");
  module.def(
      "are_plain",
      [](const std::vector<at::Tensor>& tensors) { return std::ranges::all_of(tensors, is_plain); },
      py::arg("tensors"));
  module.def("note_change", &note_change, py::arg("tensor"),
             "Tells autograd that the tensor's values have changed.");

  py::class_<GatherWork>(module, "GatherWork", "A gather in flight.")
      .def("wait", &GatherWork::wait, WithoutGil(), "The gathered rows.")
      .def("result", &GatherWork::result, WithoutGil(),
           "The gathered rows, of a call that has done its work and raised all the same.")
      .def("done", [](const GatherWork& gather) { return gather.work.done(); });
  module.def("start_allgather", &start_allgather, context, py::arg("input"), name, WithoutGil());
  module.def("start_neighbor_allgather", &start_neighbor_allgather, context, py::arg("input"),
             py::arg("plan"), py::arg("checked"), name, py::arg("order"), WithoutGil());
  module.def(
      "barrier", [](Context& c) { ops::barrier(c); }, context, WithoutGil());
}

}  // namespace bluefog::python
