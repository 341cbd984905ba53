#include "bluefog_cpp/bootstrap/mpi/arrival_mark.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/socket.h>

#include <algorithm>
#include <span>
#include <utility>

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

RollCall::RollCall(std::string job, int size)
    : job_(std::move(job)), seen_(static_cast<std::size_t>(size), false) {}

void RollCall::look() {
  all_are_here_ = !seen_.empty();
  for (std::size_t rank = 0; rank < seen_.size(); ++rank) {
    const bool is_here = ArrivalMark::is_seen(job_, static_cast<int>(rank));
    all_are_here_ = all_are_here_ && is_here;
    seen_[rank] = seen_[rank] || is_here;
  }
}

std::string RollCall::text() const {
  std::vector<int> seen;
  std::vector<int> unseen;
  for (std::size_t rank = 0; rank < seen_.size(); ++rank) {
    (seen_[rank] ? seen : unseen).push_back(static_cast<int>(rank));
  }
  if (unseen.empty()) {
    return fmt::format("all {} ranks were seen on this host, but not all made this call",
                       seen.size());
  }
  return fmt::format("seen on this host: {}; not seen: {}", names_of(seen), names_of(unseen));
}

}  // namespace bluefog::mpi
