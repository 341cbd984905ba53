#include "examples/common/named_schedule.hpp"

#include "topology/families.hpp"

namespace bluefog::examples {

const std::vector<std::string>& schedule_names() {
  static const std::vector<std::string> kNames = topology::schedule_names();
  return kNames;
}

Schedule make_schedule(std::string_view name, int size) {
  return topology::make_schedule(name, {.size = size});
}

}  // namespace bluefog::examples
