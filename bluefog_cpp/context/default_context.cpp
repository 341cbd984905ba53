#include <functional>
#include <utility>

#include "bluefog_cpp/bootstrap/default_bootstrap.hpp"
#include "bluefog_cpp/bootstrap/launch_environment.hpp"
#include "bluefog_cpp/context.hpp"
#include "bluefog_cpp/settings.hpp"
#include "bluefog_cpp/store_bootstrap.hpp"

namespace bluefog {

std::shared_ptr<Context> Context::create() { return create(Settings::for_start()); }

std::shared_ptr<Context> Context::create(std::function<void()> interrupt_check) {
  return create(Settings::for_start(), std::move(interrupt_check));
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
