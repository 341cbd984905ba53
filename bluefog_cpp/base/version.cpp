#include "bluefog_cpp/base/version.hpp"

namespace bluefog {

std::string own_version() { return BLUEFOG_VERSION; }

}  // namespace bluefog
