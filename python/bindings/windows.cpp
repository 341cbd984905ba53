#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ops/calls/validation.hpp"
#include "ops/compression.hpp"
#include "ops/window.hpp"
#include "optimizers/parameter.hpp"
#include "python/bindings/bindings.hpp"
#include "python/bindings/lasting_memory.hpp"
#include "python/bindings/python_owner.hpp"
#include "python/bindings/tensor_view.hpp"

namespace bluefog::python {
namespace {

using RankToWeight = std::map<int, double>;

std::vector<WeightedRank> weighted_ranks(const RankToWeight& weights) {
  std::vector<WeightedRank> ranks;
  for (const auto& [rank, weight] : weights) {
    ranks.push_back({.rank = rank, .weight = weight});
  }
  return ranks;
}

ops::Exclusion exclusion_of(bool require_mutex) {
  return require_mutex ? ops::Exclusion::Mutex : ops::Exclusion::None;
}

/// Null: values travel as they are.
using Code = std::shared_ptr<ops::Compression>;

ops::WindowPutOptions put_options(double self_weight, const std::optional<RankToWeight>& dst,
                                  bool require_mutex, const Code& compression) {
  ops::WindowPutOptions options{.self_weight = self_weight, .compression = compression};
  options.exclusion = exclusion_of(require_mutex);
  if (dst) {
    options.destinations = weighted_ranks(*dst);
  }
  return options;
}

/// The stream that orders a call on the window's own tensor.
ops::WindowStream stream_of(const ops::Window& window) {
  const BufferView& tensor = window.tensor();
  return tensor.device.kind == DeviceKind::Cpu
             ? ops::WindowStream()
             : ops::WindowStream(optimizers::on_current_stream(tensor).stream);
}

ops::WindowGetOptions get_options(const ops::Window& window, const std::optional<RankToWeight>& src,
                                  bool require_mutex) {
  ops::WindowGetOptions options{.stream = stream_of(window)};
  options.exclusion = exclusion_of(require_mutex);
  if (src) {
    options.sources = weighted_ranks(*src);
  }
  return options;
}

std::shared_ptr<ops::Window> create(Context& context, const at::Tensor& tensor,
                                    const NeighborPlan& plan, const std::string& name,
                                    bool zero_init, bool associated_p) {
  std::shared_ptr<ops::Window> window;
  {
    const py::gil_scoped_release released;
    BufferView view;
    ops::validate(context, [&] {
      view = view_of(tensor);
      if (tensor.is_cpu()) {
        view.owner = lasting_memory(tensor);  // peers read it at any time
      }
    });
    window =
        ops::Window::create(context, view, plan,
                            {.name = name,
                             .fill = zero_init ? ops::WindowFill::Zeros : ops::WindowFill::OwnValue,
                             .associated_weight = associated_p ? ops::AssociatedWeight::On
                                                               : ops::AssociatedWeight::Off});
  }
  return owned_by_python(std::move(window));
}

void update(ops::Window& window, std::optional<double> self_weight,
            const std::optional<RankToWeight>& src_weights, bool reset, bool require_mutex,
            const std::optional<at::Tensor>& output) {
  ops::WindowUpdateOptions options{.stream = stream_of(window)};
  if (self_weight && src_weights) {
    options.weights = ops::WindowUpdateOptions::Weights{.self_weight = *self_weight,
                                                        .sources = weighted_ranks(*src_weights)};
  }
  options.reset = reset ? ops::BufferReset::Zero : ops::BufferReset::Keep;
  options.exclusion = exclusion_of(require_mutex);
  if (output) {
    options.output = view_of(*output);
  }
  window.update(options);
}

/// Mutexes of a window that are held until `release`, which the thread that took them calls.
struct HeldLock {
  std::unique_ptr<ops::WindowLock> lock;
};

void bind_transfers(py::class_<ops::Window, std::shared_ptr<ops::Window>>& type) {
  const auto tensor = py::arg("tensor");
  const auto self_weight = py::arg("self_weight");
  const auto dst_weights = py::arg("dst_weights");
  const auto require_mutex = py::arg("require_mutex");
  const auto compression = py::arg("compression") = py::none();
  type.def(
          "start_put",
          [](ops::Window& window, const at::Tensor& value, double weight,
             const std::optional<RankToWeight>& dst, bool mutex, const Code& code) {
            return window.put_nonblocking(view_of(value), put_options(weight, dst, mutex, code));
          },
          tensor, self_weight, dst_weights, require_mutex, compression, WithoutGil())
      .def(
          "put",
          [](ops::Window& window, const at::Tensor& value, double weight,
             const std::optional<RankToWeight>& dst, bool mutex, const Code& code) {
            window.put(view_of(value), put_options(weight, dst, mutex, code));
          },
          tensor, self_weight, dst_weights, require_mutex, compression, WithoutGil())
      .def(
          "start_accumulate",
          [](ops::Window& window, const at::Tensor& value, double weight,
             const std::optional<RankToWeight>& dst, bool mutex, const Code& code) {
            return window.accumulate_nonblocking(view_of(value),
                                                 put_options(weight, dst, mutex, code));
          },
          tensor, self_weight, dst_weights, require_mutex, compression, WithoutGil())
      .def(
          "accumulate",
          [](ops::Window& window, const at::Tensor& value, double weight,
             const std::optional<RankToWeight>& dst, bool mutex, const Code& code) {
            window.accumulate(view_of(value), put_options(weight, dst, mutex, code));
          },
          tensor, self_weight, dst_weights, require_mutex, compression, WithoutGil())
      .def(
          "start_get",
          [](ops::Window& window, const std::optional<RankToWeight>& src, bool mutex) {
            return window.get_nonblocking(get_options(window, src, mutex));
          },
          py::arg("src_weights"), require_mutex, WithoutGil())
      .def(
          "get",
          [](ops::Window& window, const std::optional<RankToWeight>& src, bool mutex) {
            window.get(get_options(window, src, mutex));
          },
          py::arg("src_weights"), require_mutex, WithoutGil())
      .def(
          "publish", [](ops::Window& window) { window.publish(stream_of(window)); }, WithoutGil())
      .def("update", &update, self_weight, py::arg("src_weights"), py::arg("reset"), require_mutex,
           py::arg("output"), WithoutGil());
}

}  // namespace

void bind_windows(py::module_& module) {
  py::class_<HeldLock>(module, "WindowLock", "Mutexes of a window, held until `release`.")
      .def("release", [](HeldLock& held) { held.lock.reset(); });

  py::class_<ops::Window, std::shared_ptr<ops::Window>> window(
      module, "Window", "One-sided averaging. See ops/window.hpp.");
  window
      .def_static("create", &create, py::arg("context"), py::arg("tensor"), py::arg("plan"),
                  py::arg("name"), py::arg("zero_init"), py::arg("associated_p"), "Collective.")
      .def("free", &ops::Window::free, WithoutGil(), "Collective.")
      .def("abandon", &abandon<ops::Window>)
      .def("versions", &ops::Window::versions)
      .def_property_readonly("associated_p", &ops::Window::associated_weight)
      .def(
          "set_has_associated_p",
          [](ops::Window& w, bool on) {
            w.set_associated_weight(on ? ops::AssociatedWeight::On : ops::AssociatedWeight::Off);
          },
          py::arg("on"))
      .def(
          "lock",
          [](ops::Window& w, const std::vector<int>& ranks) {
            return HeldLock{
                .lock = std::unique_ptr<ops::WindowLock>(new ops::WindowLock(w.lock(ranks)))};
          },
          py::arg("ranks"), WithoutGil());
  bind_transfers(window);
}

}  // namespace bluefog::python
