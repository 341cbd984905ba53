#include "python/bindings/bindings.hpp"

PYBIND11_MODULE(_core, module) {
  module.doc() = "The C++ core of bluefog_cpp. Use bluefog_cpp.torch, which stands on it.";
  module.attr("version") = BLUEFOG_VERSION;
  module.attr("torch_version") = BLUEFOG_TORCH_VERSION;
  bluefog::python::bind_errors(module);
  bluefog::python::bind_context(module);
  bluefog::python::bind_launch(module);
  bluefog::python::bind_topology(module);
  bluefog::python::bind_collectives(module);
  bluefog::python::bind_windows(module);
  bluefog::python::bind_own(module);
  bluefog::python::bind_optimizers(module);
  bluefog::python::bind_parameter_collectives(module);
  bluefog::python::bind_batch_norm(module);
  bluefog::python::bind_pipeline(module);
  bluefog::python::bind_activation_cache(module);
}
