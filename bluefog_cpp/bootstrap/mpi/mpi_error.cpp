#include "bluefog_cpp/bootstrap/mpi/mpi_error.hpp"

#include <fmt/format.h>

#include <array>
#include <vector>

#include "bluefog_cpp/bootstrap/mpi/process_failure.hpp"
#include "bluefog_cpp/error.hpp"

namespace bluefog::mpi {

std::string error_text(int code) {
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  if (MPI_Error_string(code, text.data(), &length) != MPI_SUCCESS) {
    return fmt::format("unknown MPI error {}", code);
  }
  return std::string(text.data(), static_cast<std::size_t>(length));
}

void check(int code, std::string_view what, MPI_Comm comm, int peer) {
  if (code == MPI_SUCCESS) {
    return;
  }
  if (is_process_failure(code)) {
    const std::vector<int> known = peer >= 0 ? std::vector{peer} : failed_ranks(comm);
    const int failed = known.empty() ? -1 : known.front();
    if (failed >= 0) {
      throw PeerFailure(failed,
                        fmt::format("{}: rank {} failed ({})", what, failed, error_text(code)));
    }
  }
  throw MpiError(code, fmt::format("{}: {}", what, error_text(code)));
}

}  // namespace bluefog::mpi
