#pragma once

#include <string>

#include "tools/bfrun/start/environment.hpp"
#include "tools/bfrun/start/mpirun.hpp"

namespace bluefog::bfrun {

/// A folder of this job's own for the files by which mpirun and the ranks of this host meet.
///
/// Open MPI 5 names its session folder after the process id of mpirun, and refuses to start if an
/// earlier job that was killed left a folder of that name; process ids repeat in containers. The
/// folder goes with the object; one that a killed bfrun left behind is in nobody's way.
class SessionFolder {
 public:
  /// Makes the folder in TMPDIR, else in /tmp. If both fail there is none, and mpirun decides.
  explicit SessionFolder(const Environment& environment);
  SessionFolder(const SessionFolder&) = delete;
  SessionFolder& operator=(const SessionFolder&) = delete;
  ~SessionFolder();

  /// Empty when there is none.
  [[nodiscard]] const std::string& path() const { return path_; }

  /// Points `mpirun` to the folder, by a variable in `environment`, unless the user has chosen a
  /// place already, in a variable or in a file of parameters: given two places, mpirun does not
  /// answer when asked for its version.
  /// @return its version. @throws as `query_mpirun_version`.
  OpenMpiVersion offer_to(const std::string& mpirun, Environment& environment) const;

 private:
  std::string path_;
};

}  // namespace bluefog::bfrun
