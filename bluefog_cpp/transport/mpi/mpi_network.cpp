#include "bluefog_cpp/transport/mpi/mpi_network.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>

#include "bluefog_cpp/bootstrap/mpi/mpi_bootstrap_impl.hpp"
#include "bluefog_cpp/error.hpp"
#include "bluefog_cpp/transport/mpi/mpi_transport.hpp"

namespace bluefog::mpi {

std::unique_ptr<Transport> make_network(Bootstrap& bootstrap, const Settings& settings,
                                        Deadline deadline) {
  auto* const mpi = dynamic_cast<MpiBootstrap*>(&bootstrap);
  if (mpi == nullptr) {
    return nullptr;
  }
  struct Sizes {
    std::int64_t chunk_bytes;
    std::int64_t depth;
  };
  const Sizes mine{settings.mpi_chunk_bytes, settings.mpi_depth};
  const auto blobs = mpi->allgather(std::as_bytes(std::span(&mine, 1)), deadline);
  for (int other = 0; other < mpi->size(); ++other) {
    Sizes theirs{};
    std::memcpy(&theirs, blobs[other].data(), std::min(sizeof theirs, blobs[other].size()));
    if (theirs.chunk_bytes != mine.chunk_bytes || theirs.depth != mine.depth) {
      throw InvalidArgument(fmt::format(
          "MPI transport: rank {} has {} messages of {} bytes, rank {} has {} of {}: "
          "BLUEFOG_MPI_CHUNK_BYTES and BLUEFOG_MPI_DEPTH must be the same on all ranks",
          mpi->rank(), mine.depth, mine.chunk_bytes, other, theirs.depth, theirs.chunk_bytes));
    }
  }
  return std::make_unique<MpiTransport>(
      mpi->duplicate_comm(deadline),
      MpiTransportOptions{.chunk_bytes = static_cast<std::size_t>(mine.chunk_bytes),
                          .depth = static_cast<std::size_t>(mine.depth)});
}

}  // namespace bluefog::mpi
