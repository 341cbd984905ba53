#pragma once

#include <string>

namespace bluefog::bfrun {

/// The build of bfrun, as CMake knew it.
struct BuildInfo {
  const char* version;
  const char* build_type;
  const char* compiler;
  const char* mpi;     ///< MPI version and compiler wrapper, or why there is none
  const char* mpirun;  ///< path of the mpirun that was found, empty for none
  const char* torch;
  const char* cuda;
  const char* transports;
};

/// The values of this build.
[[nodiscard]] const BuildInfo& build_info();

/// The text of `bfrun --check-build`; `mpirun` is the one that would be used now.
[[nodiscard]] std::string describe_build(const std::string& mpirun);

}  // namespace bluefog::bfrun
