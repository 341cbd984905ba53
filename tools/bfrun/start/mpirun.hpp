#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/bfrun/options.hpp"

namespace bluefog::bfrun {

/// The places where an mpirun may be, in the order in which bfrun looks.
struct MpirunPlaces {
  std::string option;       ///< `--mpirun`
  std::string variable;     ///< `BLUEFOG_MPIRUN`
  std::string own_folder;   ///< folder of the bfrun program
  std::string virtual_env;  ///< `VIRTUAL_ENV`
  std::string built_with;   ///< the mpirun that CMake found
  std::string search_path;  ///< `PATH`
};

/// The first mpirun that exists. A path given by option or variable is not replaced by another: a
/// wrong one is the error.
///
/// `is_program` says whether a path can be executed. @throws UsageError, with what to install.
[[nodiscard]] std::string find_mpirun(const MpirunPlaces& places,
                                      const std::function<bool(const std::string&)>& is_program);

/// Version of Open MPI.
struct OpenMpiVersion {
  int major = 0;
  int minor = 0;
  int release = 0;

  bool operator==(const OpenMpiVersion&) const = default;
};

/// Reads the version out of the output of `mpirun --version`, `mpirun (Open MPI) 5.0.11`; nothing
/// for another MPI.
[[nodiscard]] std::optional<OpenMpiVersion> parse_mpirun_version(std::string_view output);

/// An mpirun that runs on and on when asked for its version.
class NoAnswerError : public UsageError {
 public:
  using UsageError::UsageError;
};

/// Asks `mpirun` for its version. @throws NoAnswerError when it takes longer than 10 s; UsageError
/// when it does not answer, is no Open MPI, or is older than 4.0.
[[nodiscard]] OpenMpiVersion query_mpirun_version(const std::string& mpirun);

}  // namespace bluefog::bfrun
