#include "bluefog_cpp/bootstrap/own_problem.hpp"

#include "bluefog_cpp/error.hpp"

namespace bluefog {

std::vector<Bootstrap::Blob> allgather_unless(const std::exception_ptr& own, Bootstrap& bootstrap,
                                              std::span<const std::byte> blob, Deadline deadline) {
  std::vector<Bootstrap::Blob> blobs;
  try {
    blobs = bootstrap.allgather(blob, deadline);
  } catch (const Error&) {
    if (!own) {
      throw;
    }
  }
  if (own) {
    std::rethrow_exception(own);
  }
  return blobs;
}

}  // namespace bluefog
