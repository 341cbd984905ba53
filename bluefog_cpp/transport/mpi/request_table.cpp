#include "bluefog_cpp/transport/mpi/request_table.hpp"

#include <utility>

namespace bluefog::mpi {

std::size_t RequestTable::add(RequestOwner& owner) {
  requests_.push_back(MPI_REQUEST_NULL);
  owners_.push_back(&owner);
  ended_.resize(requests_.size());
  statuses_.resize(requests_.size());
  return requests_.size() - 1;
}

MPI_Request RequestTable::unwatch(std::size_t place) noexcept {
  return std::exchange(requests_[place], MPI_REQUEST_NULL);
}

bool RequestTable::poll(int& code) {
  int count = 0;
  const int result = MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count,
                                  ended_.data(), statuses_.data());
  if (result != MPI_SUCCESS && result != MPI_ERR_IN_STATUS) {
    code = result;
    return false;
  }
  if (count == MPI_UNDEFINED || count == 0) {
    return false;
  }
  for (int i = 0; i < count; ++i) {
    const MPI_Status& status = statuses_[static_cast<std::size_t>(i)];
    const int outcome = result == MPI_ERR_IN_STATUS ? status.MPI_ERROR : MPI_SUCCESS;
    int bytes = 0;
    if (outcome == MPI_SUCCESS) {
      MPI_Get_count(&status, MPI_BYTE, &bytes);
    }
    const auto place = static_cast<std::size_t>(ended_[static_cast<std::size_t>(i)]);
    if (outcome != MPI_SUCCESS && requests_[place] != MPI_REQUEST_NULL) {
      code = outcome;  // ULFM: a receive from any source waits until the failure is acknowledged
      continue;
    }
    owners_[place]->on_ended(outcome, status.MPI_SOURCE,
                             bytes > 0 ? static_cast<std::size_t>(bytes) : 0);
  }
  return true;
}

}  // namespace bluefog::mpi
