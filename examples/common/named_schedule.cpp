#include "examples/common/named_schedule.hpp"

#include <filesystem>
#include <system_error>

#include "examples/common/option_words.hpp"
#include "topology/edge_list.hpp"
#include "topology/families.hpp"

namespace bluefog::examples {

const std::vector<std::string>& schedule_names() {
  static const std::vector<std::string> kNames = topology::schedule_names();
  return kNames;
}

Schedule make_schedule(std::string_view name, int size) {
  std::error_code none;  // what cannot be looked up is no file either
  if (!is_one_of(schedule_names(), name) && std::filesystem::exists(name, none)) {
    return topology::static_schedule(topology::load_edge_list(name, {.size = size}));
  }
  return topology::make_schedule(name, {.size = size});
}

}  // namespace bluefog::examples
