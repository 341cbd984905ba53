#include "bluefog_cpp/bootstrap/mpi/arrival_mark.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/socket.h>

#include <algorithm>
#include <span>

#include "bluefog_cpp/bootstrap/abstract_address.hpp"

namespace bluefog::mpi {

namespace {

AbstractAddress address_of(const std::string& job, int rank) {
  return AbstractAddress(fmt::format("bluefog_cpp/{}/{}", job, rank));
}

shm::UniqueFd make_socket() {
  return shm::UniqueFd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
}

std::string names_of(std::span<const int> ranks) {
  constexpr std::size_t kMostNames = 16;
  return ranks.empty()
             ? std::string("none")
             : fmt::format("{}{}", fmt::join(ranks.first(std::min(ranks.size(), kMostNames)), ", "),
                           ranks.size() > kMostNames ? ", ..." : "");
}

}  // namespace

ArrivalMark::ArrivalMark(const std::string& job, int rank) {
  if (!job.empty()) {
    socket_ = make_socket();
  }
  if (socket_) {
    static_cast<void>(address_of(job, rank).bind(socket_.get()));
  }
}

bool ArrivalMark::is_seen(const std::string& job, int rank) {
  const shm::UniqueFd probe = make_socket();
  return probe && address_of(job, rank).connect(probe.get()) == 0;
}

RollCall::RollCall(const std::string& job, int size) {
  for (int rank = 0; rank < size; ++rank) {
    (ArrivalMark::is_seen(job, rank) ? seen_ : unseen_).push_back(rank);
  }
}

std::string RollCall::text() const {
  if (all_seen()) {
    return fmt::format("all {} ranks were seen on this host, but not all made this call",
                       seen_.size());
  }
  return fmt::format("seen on this host: {}; not seen: {}", names_of(seen_), names_of(unseen_));
}

}  // namespace bluefog::mpi
