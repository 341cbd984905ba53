#include "bluefog_cpp/context.hpp"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bluefog_cpp/bootstrap/mpi_bootstrap.hpp"
#include "bluefog_cpp/context/context_core.hpp"
#include "bluefog_cpp/device/device_channel.hpp"
#include "bluefog_cpp/work.hpp"
#include "optimizers/parameter.hpp"
#include "python/bindings/bindings.hpp"
#include "python/bindings/interrupt.hpp"
#include "python/bindings/python_owner.hpp"

namespace bluefog::python {
namespace {

std::shared_ptr<Context> prepared(std::shared_ptr<Context> context) {
  context->set_interrupt_check(&run_signal_handlers);
  return owned_by_python(std::move(context));
}

void bind_layout(py::class_<Context, std::shared_ptr<Context>>& type) {
  type.def_property_readonly("machine_count",
                             [](const Context& c) { return c.machines().machine_count(); })
      .def_property_readonly("machine_rank",
                             [](const Context& c) { return c.machines().machine_of(c.rank()); })
      .def_property_readonly("machine_of_ranks",
                             [](const Context& c) {
                               std::vector<int> machines;
                               for (int rank = 0; rank < c.size(); ++rank) {
                                 machines.push_back(c.machines().machine_of(rank));
                               }
                               return machines;
                             })
      .def_property_readonly("is_homogeneous",
                             [](const Context& c) { return c.machines().is_homogeneous(); })
      .def_property_readonly("local_rank", &Context::local_rank)
      .def_property_readonly("local_size", &Context::local_size)
      .def(
          "transport_to",
          [](const Context& c, int peer) { return std::string(c.transport_to(peer)); },
          py::arg("peer"), WithoutGil(),
          "Name of the transport to `peer`: \"shm\", \"mpi\", or \"self\".");
}

void bind_timeline(py::class_<Context, std::shared_ptr<Context>>& type) {
  type.def(
          "timeline_begin",
          [](const Context& c, const std::string& lane, const std::string& name) {
            if (c.core().timeline() != nullptr) {
              c.core().timeline()->begin(lane, name);
            }
            return c.core().timeline() != nullptr;
          },
          py::arg("lane"), py::arg("name"), "False when no timeline is written.")
      .def(
          "timeline_end",
          [](const Context& c, const std::string& lane) {
            if (c.core().timeline() != nullptr) {
              c.core().timeline()->end(lane);
            }
            return c.core().timeline() != nullptr;
          },
          py::arg("lane"));
}

}  // namespace

void bind_context(py::module_& module) {
  module.def(
      "has_mpi", [] { return mpi::is_available(); },
      "Whether ranks can join over MPI: this build has it, or finds it to load.");

  py::class_<Work>(module, "Work", "A call in flight.")
      .def("wait", &optimizers::wait_on_current_stream, WithoutGil(),
           "Blocks until the call is complete; raises its error. Of one on a device until it is "
           "launched: torch's current stream then waits for it.")
      .def("done", &Work::done, "Whether `wait` would return at once. Never blocks.");

  // Its end may wait for a store in Python; pybind11 holds what can share itself without
  // `owned_by_python`.
  py::class_<Context, std::shared_ptr<Context>> context(
      module, "Context", py::release_gil_before_calling_cpp_dtor(),
      "A group of ranks that communicate. See bluefog_cpp/context.hpp.");
  context
      .def_static(
          "create", [] { return prepared(Context::create(&run_signal_handlers)); }, WithoutGil(),
          "Collective. The ranks of this launch, or this process alone.")
      .def(
          "duplicate", [](Context& c) { return prepared(c.duplicate()); }, WithoutGil(),
          "Collective. An independent context over the same ranks.")
      .def(
          "shrink", [](Context& c) { return prepared(c.shrink()); }, WithoutGil(),
          "Collective over the ranks that live: a new context over them. This one ends.")
      .def(
          "regroup", [](Context& c) { return prepared(c.regroup()); }, WithoutGil(),
          "The same with the processes that wait to join.")
      .def(
          "expect_late",
          [](Context& c, int rank) {
            c.core().bootstrap().expect_late(rank, c.settings().timeout);
          },
          py::arg("rank"), "A copy of this context has waited for it already: see Bootstrap.")
      .def(
          "give_up",
          [](Context& c, const std::string& why) {
            Engine& engine = c.core().engine();
            engine.run_exclusively([&] { engine.step_news().given_up.tell(why); });
          },
          py::arg("why"), WithoutGil(), "Tells the others that this rank's program cannot go on.")
      .def_property_readonly("is_applicant", &Context::is_applicant,
                             "Whether this process waits to join.")
      .def_property_readonly(
          "membership",
          [](const Context& c) {
            const Membership& members = c.membership();
            py::list lost;
            for (const Membership::Loss& loss : members.lost) {
              lost.append(py::make_tuple(loss.rank, loss.epoch, loss.cause, loss.time, loss.step));
            }
            py::list joined;
            for (const Membership::Entry& entry : members.joined) {
              joined.append(py::make_tuple(entry.rank, entry.epoch));
            }
            return py::make_tuple(members.epoch, members.ranks, lost, joined);
          })
      .def(
          "note_first_step",
          [](const Context& c, std::int64_t step) { c.core().note_first_step(step); },
          py::arg("step"),
          "The first step of optimizers without the ranks whose loss has none yet.")
      .def_property_readonly(
          "shrinks_on_failure",
          [](const Context& c) { return c.settings().on_failure == OnFailure::Shrink; })
      .def(
          "check_revoked",
          [](const Context& c, const std::string& where) {
            c.core().engine().check_revoked(where);
          },
          py::arg("where"), WithoutGil(),
          "For who waits for nobody: raises RankLostError where all calls have been revoked.")
      .def(
          "is_gone",
          [](const Context& c, int rank) {
            return rank >= 0 && rank < c.size() && rank != c.rank() &&
                   c.core().engine().cause_of_death(rank).has_value();
          },
          py::arg("rank"), WithoutGil(),
          "Whether that rank has ended, left, or gives no sign of life.")
      .def(
          "is_revoked", [](const Context& c) { return c.core().engine().is_revoked(); },
          WithoutGil(), "Whether all calls have been revoked.")
      .def("resync", &Context::resync, WithoutGil(),
           "Collective. Ranks that are calls apart go on with the same one.")
      .def(
          "use_device", [](Context& c, int device) { c.use_device(device); }, py::arg("device"),
          WithoutGil(), "Collective. Calls then take tensors on that CUDA device too.")
      .def_property_readonly(
          "device",
          [](const Context& c) -> std::optional<int> {
            return c.core().device() ? std::optional(c.core().device()->device()) : std::nullopt;
          },
          "The CUDA device that `use_device` was told, or None.")
      .def(
          "uses_nccl",
          [](const Context& c) {
            return c.core().device() &&
                   c.core().device()->way_of(OpKind::NeighborAllreduce) == DeviceWay::Nccl;
          },
          "Whether averages on the device go by NCCL.")
      .def_property_readonly("rank", &Context::rank)
      .def_property_readonly("size", &Context::size)
      .def("close", &Context::close, WithoutGil(), "Leaves the group. Idempotent.")
      .def("abandon", &abandon<Context>,
           "Forgets it for good, without ending it: for the child of a fork.")
      .def(
          "refuse",
          [](Context& c, const std::string& reason, int partner) {
            c.core().engine().refuse(reason, partner);
          },
          py::arg("reason"), py::arg("partner") = -1, WithoutGil(),
          "Counts a call that was refused before it began; peers that wait in it are told why: the "
          "partner alone where it was to be made with that one.")
      .def(
          "log_warning", [](const Context& c, const std::string& text) { c.log().warning(text); },
          py::arg("text"))
      .def(
          "log_error", [](const Context& c, const std::string& text) { c.log().error(text); },
          py::arg("text"));
  bind_layout(context);
  bind_timeline(context);
}

}  // namespace bluefog::python
