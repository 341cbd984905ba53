#include "python/c10d/group_place.hpp"

namespace bluefog::c10d_backend {

Settings settings_of(const GroupPlace& place) {
  Settings settings = Settings::for_start();
  settings.timeout = place.timeout;
  settings.timeout_name = "the timeout of its process group";
  settings.expect_size = 0;  // said of all ranks, of whom these may be some
  // Contexts of one process write files of their own.
  for (std::string* const prefix : {&settings.timeline, &settings.flight_recorder}) {
    if (!prefix->empty()) {
      *prefix += "c10d_" + place.name + "_";
    }
  }
  settings.notices.clear();  // the program's own context tells them
  return settings;
}

}  // namespace bluefog::c10d_backend
