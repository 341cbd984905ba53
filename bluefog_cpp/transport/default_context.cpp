#include "bluefog_cpp/base/settings.hpp"
#include "bluefog_cpp/transport/context.hpp"
#include "bluefog_cpp/transport/default_bootstrap.hpp"

namespace bluefog {

std::shared_ptr<Context> Context::create() { return create(Settings::from_environment()); }

std::shared_ptr<Context> Context::create(const Settings& settings) {
  return create(make_default_bootstrap(settings, Deadline::after(settings.timeout)), settings);
}

}  // namespace bluefog
