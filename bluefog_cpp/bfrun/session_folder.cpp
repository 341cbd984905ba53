#include "bluefog_cpp/bfrun/session_folder.hpp"

#include <cstdlib>
#include <filesystem>

#include "bluefog_cpp/bfrun/mpirun.hpp"
#include "bluefog_cpp/bfrun/process.hpp"

namespace bluefog::launcher {
namespace {

/// Where the daemon of this host alone puts its session folder.
constexpr const char* kVariable = "PRTE_MCA_prte_local_tmpdir_base";

}  // namespace

SessionFolder::SessionFolder(const Environment& environment) {
  const auto chosen = environment.find("TMPDIR");
  const bool has_place = chosen != environment.end() && !chosen->second.empty();
  std::string name = (has_place ? chosen->second : "/tmp") + "/bfrun.XXXXXX";
  if (mkdtemp(name.data()) != nullptr) path_ = std::move(name);
}

SessionFolder::~SessionFolder() {
  if (path_.empty()) return;
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void SessionFolder::offer_to(const std::string& mpirun, Environment& environment) const {
  if (path_.empty() || environment.contains(kVariable)) return;
  // mpirun refuses to run with a base for one host beside one for all; it knows where each was set.
  setenv(kVariable, path_.c_str(), 1);
  const bool accepted = parse_mpirun_version(capture_output({mpirun, "--version"})).has_value();
  unsetenv(kVariable);
  if (accepted) environment[kVariable] = path_;
}

}  // namespace bluefog::launcher
