#include "tools/bfrun/job/session_folder.hpp"

#include <cstdlib>
#include <filesystem>

#include "tools/bfrun/options.hpp"

namespace bluefog::bfrun {
namespace {

/// The variable that places the session folder of this host's daemon alone.
constexpr const char* kVariable = "PRTE_MCA_prte_local_tmpdir_base";

}  // namespace

SessionFolder::SessionFolder(const Environment& environment) {
  const auto chosen = environment.find("TMPDIR");
  // Open MPI would make a folder that does not exist, and leave it behind.
  const bool has_place =
      chosen != environment.end() && std::filesystem::is_directory(chosen->second);
  std::string name = (has_place ? chosen->second : "/tmp") + "/bfrun.XXXXXX";
  if (mkdtemp(name.data()) != nullptr) path_ = std::move(name);
}

SessionFolder::~SessionFolder() {
  if (path_.empty()) return;
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

OpenMpiVersion SessionFolder::offer_to(const std::string& mpirun, Environment& environment) const {
  if (path_.empty() || environment.contains(kVariable)) {
    return query_mpirun_version(mpirun);
  }
  setenv(kVariable, path_.c_str(), 1);
  try {
    const OpenMpiVersion version = query_mpirun_version(mpirun);
    unsetenv(kVariable);
    environment[kVariable] = path_;
    return version;
  } catch (const UsageError&) {
    unsetenv(kVariable);
    return query_mpirun_version(mpirun);
  }
}

}  // namespace bluefog::bfrun
