#include <fmt/format.h>

#include <cstdlib>
#include <functional>
#include <string>
#include <utility>

#include "bluefog_cpp/bootstrap/default_bootstrap.hpp"
#include "bluefog_cpp/bootstrap/launch_environment.hpp"
#include "bluefog_cpp/context.hpp"
#include "bluefog_cpp/error.hpp"
#include "bluefog_cpp/settings.hpp"
#include "bluefog_cpp/store_bootstrap.hpp"

namespace bluefog {

namespace {

/// This rank as launchers number it; empty where none says.
std::string launched_rank() {
  for (const char* variable : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "RANK"}) {
    if (const char* const value = std::getenv(variable)) {
      return value;
    }
  }
  return {};
}

Settings settings_of_this_rank() {
  try {
    return Settings::from_environment();
  } catch (const InvalidArgument& error) {
    const std::string rank = launched_rank();
    throw InvalidArgument(rank.empty() ? error.what()
                                       : fmt::format("rank {}: {}", rank, error.what()));
  }
}

}  // namespace

std::shared_ptr<Context> Context::create() { return create(settings_of_this_rank()); }

std::shared_ptr<Context> Context::create(std::function<void()> interrupt_check) {
  return create(settings_of_this_rank(), std::move(interrupt_check));
}

std::shared_ptr<Context> Context::create(const Settings& settings,
                                         std::function<void()> interrupt_check) {
  return create(make_default_bootstrap(settings, Deadline::after(settings.timeout),
                                       std::move(interrupt_check)),
                settings);
}

std::shared_ptr<Context> Context::create(std::shared_ptr<Store> store, const StorePlace& place,
                                         const Settings& settings,
                                         std::function<void()> interrupt_check) {
  if (!settings.joins) {
    LaunchEnvironment::check_handed_place(place.rank, place.size);
  }
  return create(make_store_bootstrap(std::move(store), place, settings,
                                     Deadline::after(settings.timeout), std::move(interrupt_check)),
                settings);
}

}  // namespace bluefog
