#include "topology/step_cost.hpp"

#include <fmt/format.h>

#include <string_view>

#include "bluefog_cpp/error.hpp"

namespace bluefog::topology {
namespace {

void require_cost(bool holds, std::string_view what, double found, std::string_view expected) {
  if (holds) {
    return;
  }
  throw InvalidArgument(fmt::format("cost model: {} is {}, expected {}", what, found, expected));
}

void check_model(const CostModel& model) {
  require_cost(model.latency.count() >= 0.0, "the latency in seconds", model.latency.count(),
               "at least 0");
  require_cost(model.compute.count() >= 0.0, "the compute time in seconds", model.compute.count(),
               "at least 0");
  require_cost(model.bytes_per_second > 0.0, "the bandwidth in bytes per second",
               model.bytes_per_second, "more than 0");
  require_cost(model.message_bytes >= 0, "the number of bytes",
               static_cast<double>(model.message_bytes), "at least 0");
}

Seconds time_of_bytes(const CostModel& model) {
  return Seconds(static_cast<double>(model.message_bytes) / model.bytes_per_second);
}

}  // namespace

Seconds step_time(int degree, const CostModel& model) {
  check_model(model);
  return model.compute + degree * (model.latency + time_of_bytes(model));
}

Seconds ring_allreduce_time(int size, const CostModel& model) {
  check_model(model);
  require_cost(size >= 1, "the number of ranks", size, "at least 1");
  const double hops = 2.0 * (size - 1);
  return model.compute + hops * model.latency + hops / size * time_of_bytes(model);
}

}  // namespace bluefog::topology
