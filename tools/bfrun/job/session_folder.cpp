#include "tools/bfrun/job/session_folder.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <string.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "tools/bfrun/job/descriptor.hpp"
#include "tools/bfrun/options.hpp"

namespace bluefog::bfrun {
namespace {

/// The variable that places the session folder of this host's daemon alone.
constexpr const char* kVariable = "PRTE_MCA_prte_local_tmpdir_base";

/// Whether a file of some size can be written in `folder`; errno says why not.
bool takes_files(const std::string& folder) {
  constexpr off_t kBytes = 65536;
  const std::string name = folder + "/probe";
  const Descriptor file(open(name.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600));
  if (file.get() < 0) {
    return false;
  }
  const int result = posix_fallocate(file.get(), 0, kBytes);
  unlink(name.c_str());
  errno = result;
  return result == 0;
}

}  // namespace

SessionFolder::SessionFolder(const Environment& environment) {
  const auto chosen = environment.find("TMPDIR");
  // Open MPI would make a folder that does not exist, and leave it behind.
  const bool has_place =
      chosen != environment.end() && std::filesystem::is_directory(chosen->second);
  const std::string place = has_place ? chosen->second : "/tmp";
  std::string name = place + "/bfrun.XXXXXX";
  const bool is_made = mkdtemp(name.data()) != nullptr;
  if (is_made) {
    path_ = std::move(name);
  }
  if (is_made && takes_files(path_)) {
    return;
  }
  const int reason = errno;
  remove();
  throw UsageError(fmt::format(
      "{}: expected a folder for the files by which mpirun and the ranks meet, found that '{}' takes "
      "none: {}; set TMPDIR to one that does",
      has_place ? "TMPDIR" : "TMPDIR is not set", place, strerror(reason)));
}

SessionFolder::~SessionFolder() { remove(); }

bool SessionFolder::is_chosen(const Environment& environment) {
  return environment.contains(kVariable);
}

void SessionFolder::remove() noexcept {
  if (path_.empty()) {
    return;
  }
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

OpenMpiVersion SessionFolder::offer_to(const std::string& mpirun, Environment& environment) const {
  setenv(kVariable, path_.c_str(), 1);
  try {
    const OpenMpiVersion version = query_mpirun_version(mpirun);
    unsetenv(kVariable);
    environment[kVariable] = path_;
    return version;
  } catch (const NoAnswerError&) {
    throw;  // once is enough
  } catch (const UsageError&) {
    unsetenv(kVariable);
    return query_mpirun_version(mpirun);
  }
}

}  // namespace bluefog::bfrun
