#pragma once

#include <string>

#include "tools/bfrun/start/environment.hpp"
#include "tools/bfrun/start/mpirun.hpp"

namespace bluefog::bfrun {

/// Variable that tells watchers on this machine which folder a killed bfrun leaves to them.
inline constexpr const char* kSessionVariable = "BFRUN_SESSION";

/// A folder of this job's own for the files by which mpirun and the ranks of this host meet.
///
/// Open MPI 5 names its session folder after the process id of mpirun, and refuses to start if an
/// earlier job that was killed left a folder of that name; process ids repeat in containers. The
/// folder goes with the object, or with the watchers of the ranks where bfrun is killed.
class SessionFolder {
 public:
  /// Makes the folder in TMPDIR, or in /tmp where TMPDIR is not set or does not exist.
  /// @throws UsageError that names the place when nothing can be written there: mpirun and the
  ///   ranks
  /// could not meet.
  explicit SessionFolder(const Environment& environment);
  SessionFolder(const SessionFolder&) = delete;
  SessionFolder& operator=(const SessionFolder&) = delete;
  ~SessionFolder();

  /// Whether a variable says where mpirun is to have its folder.
  [[nodiscard]] static bool is_chosen(const Environment& environment);

  [[nodiscard]] const std::string& path() const { return path_; }

  /// Points `mpirun` to the folder, by a variable in `environment`, unless the user has chosen a
  /// place already in a file of parameters: given two places, mpirun does not answer when asked for
  /// its version.
  /// @return its version. @throws as `query_mpirun_version`.
  OpenMpiVersion offer_to(const std::string& mpirun, Environment& environment) const;

 private:
  void remove() noexcept;

  std::string path_;
};

}  // namespace bluefog::bfrun
