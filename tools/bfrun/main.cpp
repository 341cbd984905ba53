#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include "tools/bfrun/build_info.hpp"
#include "tools/bfrun/job/job.hpp"
#include "tools/bfrun/job/process.hpp"
#include "tools/bfrun/options.hpp"
#include "tools/bfrun/rank/rank_shim.hpp"
#include "tools/bfrun/start/mpirun.hpp"
#include "tools/command_line/standard_output.hpp"

namespace {

using namespace bluefog::bfrun;

constexpr int kUsageCode = 2;

/// The mpirun of a job started now, in words.
std::string mpirun_of(const Options& options) {
  try {
    const std::string path = locate_mpirun(options);
    const auto version = query_mpirun_version(path);
    return fmt::format("{}, Open MPI {}.{}.{}", path, version.major, version.minor,
                       version.release);
  } catch (const UsageError& error) {
    return error.what();
  }
}

/// The text that is the command's whole work.
/// @throws std::runtime_error if it is lost.
void print(const std::string& text, bool is_output_closed) {
  if (is_output_closed) {
    throw std::runtime_error("cannot write standard output: it is closed");
  }
  bluefog::command_line::print(text);
}

int run(const std::vector<std::string>& arguments, bool is_output_closed) {
  // mpirun starts bfrun once more for each rank, as `bfrun --exec-rank -- COMMAND`.
  if (arguments.size() >= 2 && arguments[0] == "--exec-rank" && arguments[1] == "--") {
    return run_rank({arguments.begin() + 2, arguments.end()});
  }
  if (arguments == std::vector<std::string>{"--exec-far-rank"}) {
    return run_far_rank();
  }
  const Options options = parse_options(arguments);
  if (!options.help_text.empty()) {
    print(options.help_text, is_output_closed);
  } else if (options.show_version) {
    print(fmt::format("bfrun {}\n", build_info().version), is_output_closed);
  } else if (options.check_build) {
    print(describe_build(mpirun_of(options)), is_output_closed);
  } else {
    return run_job(options);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const bool is_output_closed = bluefog::command_line::fill_closed_output();
  open_missing_streams();
  if (std::getenv("HOME") == nullptr) {
    setenv("HOME", "/", 0);  // Open MPI does not start without
  }
  try {
    return run({argv + 1, argv + argc}, is_output_closed);
  } catch (const CommandError& error) {
    fmt::print(stderr, "bfrun: {}\n", error.what());
    return error.code();
  } catch (const UsageError& error) {
    fmt::print(stderr, "bfrun: {}\n(bfrun --help lists the options)\n", error.what());
    return kUsageCode;
  } catch (const std::exception& error) {
    fmt::print(stderr, "bfrun: {}\n", error.what());
    return 1;
  }
}
