#include "examples/common/run_main.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <memory>

#include "bluefog_cpp/error.hpp"
#include "tools/command_line/standard_output.hpp"

namespace bluefog::examples {

int run_main(const char* program, const std::function<int(Context&)>& body) {
  const bool is_output_closed = command_line::fill_closed_output();
  std::shared_ptr<Context> context;
  try {
    context = Context::create();
    const int code = body(*context);
    command_line::flush_output();
    if (is_output_closed) {
      throw StateError("cannot write standard output: it is closed");
    }
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
