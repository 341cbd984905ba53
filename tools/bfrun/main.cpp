#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "tools/bfrun/build_info.hpp"
#include "tools/bfrun/job/job.hpp"
#include "tools/bfrun/job/process.hpp"
#include "tools/bfrun/options.hpp"
#include "tools/bfrun/rank/rank_shim.hpp"
#include "tools/bfrun/start/mpirun.hpp"

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

int run(const std::vector<std::string>& arguments) {
  // mpirun starts bfrun once more for each rank, as `bfrun --exec-rank -- COMMAND`.
  if (arguments.size() >= 2 && arguments[0] == "--exec-rank" && arguments[1] == "--") {
    return run_rank({arguments.begin() + 2, arguments.end()});
  }
  const Options options = parse_options(arguments);
  if (!options.help_text.empty()) {
    fmt::print("{}", options.help_text);
  } else if (options.show_version) {
    fmt::print("bfrun {}\n", build_info().version);
  } else if (options.check_build) {
    fmt::print("{}", describe_build(mpirun_of(options)));
  } else {
    return run_job(options);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  open_missing_streams();
  if (std::getenv("HOME") == nullptr) {
    setenv("HOME", "/", 0);  // Open MPI does not start without
  }
  try {
    return run({argv + 1, argv + argc});
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
