#pragma once

#include <functional>

#include "bluefog_cpp/context.hpp"

namespace bluefog::examples {

/// Body of an example's `main`: makes the context of this launch, runs `body` in it and returns
/// what that returns. An exception is printed with the rank that it happened on and gives 1, as
/// does output that is lost; it leaves the other ranks to their own errors.
int run_main(const char* program, const std::function<int(Context&)>& body);

}  // namespace bluefog::examples
