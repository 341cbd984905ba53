#include "python/bindings/python_store.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "bluefog_cpp/bootstrap/default_bootstrap.hpp"
#include "bluefog_cpp/bootstrap/rank_claim.hpp"
#include "bluefog_cpp/bootstrap/store/exit_hooks.hpp"
#include "bluefog_cpp/context.hpp"
#include "bluefog_cpp/error.hpp"
#include "python/bindings/bindings.hpp"
#include "python/bindings/interrupt.hpp"
#include "python/bindings/own/python_object.hpp"
#include "python/bindings/python_owner.hpp"

namespace bluefog::python {
namespace {

class PythonStore final : public Store {
 public:
  explicit PythonStore(py::object view)
      : view_(std::move(view)), description_(py::str(view_.get().attr("description"))) {}

  void set(const std::string& key, std::span<const std::byte> value, Deadline) override {
    call([&] {
      view_.get().attr("set")(key,
                              py::bytes(reinterpret_cast<const char*>(value.data()), value.size()));
    });
  }

  [[nodiscard]] std::optional<Bytes> get(const std::string& key, Deadline deadline) override {
    constexpr double kLong = 3600;
    const std::chrono::duration<double> left = deadline.when() - Deadline::Clock::now();
    std::optional<Bytes> value;
    call([&] {
      const py::object found = view_.get().attr("get")(
          key, deadline.is_set() ? std::clamp(left.count(), 0.0, kLong) : kLong);
      if (!found.is_none()) {
        const auto text = static_cast<std::string_view>(py::bytes(found));
        const auto bytes = std::as_bytes(std::span(text));
        value.emplace(bytes.begin(), bytes.end());
      }
    });
    return value;
  }

  std::int64_t add(const std::string& key, std::int64_t amount, Deadline) override {
    std::int64_t sum = 0;
    call([&] { sum = view_.get().attr("add")(key, amount).cast<std::int64_t>(); });
    return sum;
  }

  void remove(const std::string& key, Deadline) override {
    call([&] { view_.get().attr("remove")(key); });
  }

  [[nodiscard]] std::string description() const override { return description_; }

 private:
  template <typename Call>
  void call(const Call& body) const {
    if (is_interpreter_gone()) {
      throw TransportError("its interpreter has ended");
    }
    const py::gil_scoped_acquire gil;
    try {
      body();
    } catch (const py::error_already_set& error) {
      throw TransportError(first_line(error.what()));
    } catch (const py::cast_error& error) {
      throw TransportError(fmt::format("expected another type of value: {}", error.what()));
    }
  }

  static std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

  PythonObject view_;
  std::string description_;
};

std::shared_ptr<Context> join(const std::shared_ptr<Store>& store,
                              const LaunchEnvironment& launch) {
  const Settings settings = Settings::for_start();
  auto context =
      Context::create(join_over_store(store, launch, settings, Deadline::after(settings.timeout),
                                      &run_signal_handlers),
                      settings);
  context->set_interrupt_check(&run_signal_handlers);
  return owned_by_python(std::move(context));
}

std::string name_of(LaunchWay way) {
  switch (way) {
    case LaunchWay::Bfrun:
      return "bfrun";
    case LaunchWay::Torchrun:
      return "torchrun";
    case LaunchWay::Mpi:
      return "mpi";
    case LaunchWay::Environment:
      return "environment";
    case LaunchWay::Slurm:
      return "slurm";
    case LaunchWay::Single:
      break;
  }
  return "single";
}

}  // namespace

std::shared_ptr<Store> make_python_store(const py::object& view) {
  return std::make_shared<PythonStore>(view);
}

void bind_launch(py::module_& module) {
  py::class_<LaunchEnvironment>(module, "Launch",
                                "Who started this process, and its place among the ranks.")
      .def(py::init<>())
      .def_static(
          "detect", [] { return LaunchEnvironment::detect(); }, "As the environment tells it.")
      .def_static(
          "check_handed_place",
          [](int rank, int size) {
            if (!Settings::for_start().joins) {
              LaunchEnvironment::check_handed_place(rank, size);
            }
          },
          py::arg("rank"), py::arg("size"),
          "Refuses a place beside a store of the caller's that is not the one launchers name.")
      .def(
          "claim",
          [](const LaunchEnvironment& launch) {
            if (!Settings::for_start().joins) {
              claim_rank(launch);
            }
          },
          "Refuses what a rank has started, which is no rank, unless it asks to join.")
      .def_property_readonly(
          "way", [](const LaunchEnvironment& launch) { return name_of(launch.way); },
          "How its ranks find each other: bfrun, torchrun, mpi, environment, slurm or single.")
      .def_readwrite("launcher", &LaunchEnvironment::launcher)
      .def_readwrite("rank", &LaunchEnvironment::rank)
      .def_readwrite("size", &LaunchEnvironment::size)
      .def_readwrite("stated_by", &LaunchEnvironment::stated_by)
      .def_readwrite("store", &LaunchEnvironment::store)
      .def_readwrite("prefix", &LaunchEnvironment::prefix)
      .def_readonly("job", &LaunchEnvironment::job)
      .def_readonly("is_store_served", &LaunchEnvironment::is_store_served);
  module.def("run_exit_hooks", &run_exit_hooks, WithoutGil(),
             "Leaves the others, as at the exit of the process, while the interpreter is there.");
  module.def(
      "settings_timeout",
      [] { return std::chrono::duration<double>(Settings::for_start().timeout).count(); },
      "BLUEFOG_TIMEOUT in seconds; 0: never.");
  module.def(
      "join_over_store",
      [](const py::object& view, const LaunchEnvironment& launch) {
        const auto store = make_python_store(view);
        const py::gil_scoped_release released;
        return join(store, launch);
      },
      py::arg("view"), py::arg("launch"), "Collective. The context of ranks that meet in a store.");
}

}  // namespace bluefog::python
