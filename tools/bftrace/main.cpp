#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "bluefog_cpp/base/version.hpp"
#include "tools/bftrace/merge.hpp"
#include "tools/bftrace/stall.hpp"
#include "tools/command_line/standard_output.hpp"

namespace {

using namespace bluefog;
using namespace bluefog::bftrace;

void stall(const std::vector<std::string>& paths) {
  std::vector<FlightRecord> records;
  for (const std::string& path : paths) {
    records.push_back(parse_record(path, read_file(path)));
  }
  command_line::print(explain_stall(std::move(records)));
}

int run(int argc, char** argv) {
  CLI::App app{"Reads what the ranks of a run wrote about their calls", "bftrace"};
  app.set_version_flag("-v,--version", "bftrace " + own_version());
  app.require_subcommand(1);
  std::vector<std::string> paths;
  std::string output;
  CLI::App& merging = *app.add_subcommand(
      "merge", "Joins timelines (BLUEFOG_TIMELINE) of several ranks into one file");
  merging.add_option("FILE", paths, "Each rank's <prefix><rank>.json")->required();
  merging.add_option("-o,--output", output, "Where the joined timeline goes")->required();
  CLI::App& stalling = *app.add_subcommand(
      "stall", "Says who waits for whom, from flight records (BLUEFOG_FLIGHT_RECORDER)");
  stalling.add_option("FILE", paths, "Each rank's <prefix><rank>.json")->required();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {
      const int code = app.exit(error);  // help or the version was asked for
      command_line::flush_output();
      return code;
    }
    fmt::print(stderr, "bftrace: {}\n(bftrace --help lists the commands)\n", error.what());
    return 2;
  }
  if (merging.parsed()) {
    const Joined joined = merge_files(paths, output);
    for (const std::string& path : joined.without_end) {
      fmt::print(stderr, "bftrace: {} ends in the middle: its whole events count\n", path);
    }
    command_line::print(
        fmt::format("{}: {} events of {} files\n", output, joined.events, paths.size()));
  } else {
    stall(paths);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bftrace: {}\n", error.what());
    return 1;
  }
}
