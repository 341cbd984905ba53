#include "bluefog_cpp/bootstrap/mpi/arrival_mark.hpp"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>

namespace bluefog::mpi {

namespace {

constexpr int kMostNames = 16;

// Calls `call` with the address of a rank's mark. Names longer than an address keep their end,
// which tells the ranks apart.
template <typename Call>
int with_address(const std::string& job, int rank, Call call) {
  const std::string name = fmt::format("bluefog_cpp/{}/{}", job, rank);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::size_t length = std::min(name.size(), sizeof(address.sun_path) - 1);
  std::memcpy(address.sun_path + 1, name.data() + (name.size() - length), length);
  return call(reinterpret_cast<const sockaddr*>(&address),
              static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length));
}

shm::UniqueFd make_socket() {
  return shm::UniqueFd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
}

void add_name(std::string& names, int& count, int rank) {
  if (count < kMostNames) {
    names += fmt::format("{}{}", count == 0 ? "" : ", ", rank);
  } else if (count == kMostNames) {
    names += ", …";
  }
  ++count;
}

}  // namespace

ArrivalMark::ArrivalMark(const std::string& job, int rank) : socket_(make_socket()) {
  if (socket_) {
    with_address(job, rank, [this](const sockaddr* address, socklen_t length) {
      return ::bind(socket_.get(), address, length);
    });
  }
}

bool ArrivalMark::is_seen(const std::string& job, int rank) {
  const shm::UniqueFd probe = make_socket();
  return probe && with_address(job, rank, [&probe](const sockaddr* address, socklen_t length) {
                    return ::connect(probe.get(), address, length);
                  }) == 0;
}

std::string ArrivalMark::roll_call(const std::string& job, int size) {
  std::string seen;
  std::string unseen;
  int seen_count = 0;
  int unseen_count = 0;
  for (int rank = 0; rank < size; ++rank) {
    if (is_seen(job, rank)) {
      add_name(seen, seen_count, rank);
    } else {
      add_name(unseen, unseen_count, rank);
    }
  }
  if (unseen_count == 0) {
    return fmt::format("all {} ranks were seen on this host, but not all made this call", size);
  }
  return fmt::format("seen on this host: {}; not seen: {}", seen_count == 0 ? "none" : seen,
                     unseen);
}

std::string job_name() {
  for (const char* variable : {"PMIX_NAMESPACE", "PMI_JOBID", "SLURM_JOB_ID"}) {
    const char* const value = std::getenv(variable);
    if (value != nullptr && *value != '\0') {
      return value;
    }
  }
  return {};
}

}  // namespace bluefog::mpi
