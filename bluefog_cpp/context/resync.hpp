#pragma once

#include "bluefog_cpp/bootstrap.hpp"
#include "bluefog_cpp/deadline.hpp"
#include "bluefog_cpp/engine/engine.hpp"

namespace bluefog {

/// Does `Context::resync`.
void resync(Bootstrap& bootstrap, Engine& engine, Deadline deadline);

}  // namespace bluefog
