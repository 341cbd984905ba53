#include "examples/common/run_main.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <memory>

namespace bluefog::examples {

int run_main(const char* program, const std::function<int(Context&)>& body) {
  std::shared_ptr<Context> context;
  try {
    context = Context::create();
    const int code = body(*context);
    std::fflush(stdout);
    return code;
  } catch (const std::exception& error) {
    std::fflush(stdout);
    fmt::print(stderr, "{}{}: {}\n", program,
               context ? fmt::format(" (rank {} of {})", context->rank(), context->size()) : "",
               error.what());
    return 1;
  }
}

}  // namespace bluefog::examples
