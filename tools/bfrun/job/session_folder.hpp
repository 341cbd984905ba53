#pragma once

#include <string>

#include "tools/bfrun/start/environment.hpp"
#include "tools/bfrun/start/mpirun.hpp"

namespace bluefog::launcher {

/// A folder of this job's own for the files by which mpirun and the ranks of this host meet.
///
/// Open MPI 5 names its session folder after the process id of mpirun, and refuses to start where
/// one of an earlier job that was killed still has that name, as happens in containers, whose
/// process ids repeat. The folder goes with the object; one that a killed bfrun left behind is in
/// nobody's way.
class SessionFolder {
 public:
  /// Makes the folder in TMPDIR, else in /tmp. Where that fails there is none, and mpirun decides.
  explicit SessionFolder(const Environment& environment);
  SessionFolder(const SessionFolder&) = delete;
  SessionFolder& operator=(const SessionFolder&) = delete;
  ~SessionFolder();

  /// Empty when there is none.
  [[nodiscard]] const std::string& path() const { return path_; }

  /// Points `mpirun` to the folder, by a variable in `environment`; not where the user has chosen a
  /// place already, in a variable or in a file of parameters: mpirun, asked for its version beside
  /// that, does not answer then.
  /// @return its version. Errors: as `query_mpirun_version`.
  OpenMpiVersion offer_to(const std::string& mpirun, Environment& environment) const;

 private:
  std::string path_;
};

}  // namespace bluefog::launcher
