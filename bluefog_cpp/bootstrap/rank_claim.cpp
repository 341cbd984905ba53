#include "bluefog_cpp/bootstrap/rank_claim.hpp"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <optional>
#include <string>
#include <thread>

#include "bluefog_cpp/base/files/unique_fd.hpp"
#include "bluefog_cpp/bootstrap/abstract_address.hpp"
#include "bluefog_cpp/error.hpp"

namespace bluefog {

namespace {

// Refused connections stay in the queue of the socket until its process ends.
constexpr int kMostRefused = 1024;

shm::UniqueFd make_socket() {
  return shm::UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

struct Holder {
  bool is_stranger = false;
  pid_t process = 0;  ///< 0: not to be known, as in another process namespace
};

// The process that listens at `address`; nothing where nobody does.
std::optional<Holder> holder_of(const AbstractAddress& address) {
  const shm::UniqueFd probe = make_socket();
  ucred peer{};
  socklen_t length = sizeof peer;
  if (address.connect(probe.get()) != 0) {
    return errno == EAGAIN ? std::optional(Holder{}) : std::nullopt;
  }
  if (::getsockopt(probe.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
    return Holder{};
  }
  return Holder{.is_stranger = peer.uid != ::geteuid(), .process = peer.pid};
}

// This process's claim, which its forks have no part in.
class RankClaim {
 public:
  RankClaim(const RankClaim&) = delete;
  RankClaim& operator=(const RankClaim&) = delete;
  explicit RankClaim(const LaunchEnvironment& launch) : process_(::getpid()) {
    const AbstractAddress address(fmt::format("bluefog_cpp/{}/rank/{}", launch.job, launch.rank));
    socket_ = make_socket();
    // Another one may be between its bind and its listen, or just ending.
    constexpr int kAttempts = 100;
    for (int attempt = 0; socket_ && attempt < kAttempts; ++attempt) {
      if (address.bind(socket_.get()) == 0) {
        hold();
        return;
      }
      if (errno != EADDRINUSE) {
        break;
      }
      if (const auto holder = holder_of(address)) {
        if (!holder->is_stranger) {
          refuse(launch, holder->process);
        }
        break;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    socket_.reset();
  }

  void check(const LaunchEnvironment& launch) const {
    if (const pid_t process = ::getpid(); process != process_) {
      throw StateError(
          fmt::format("process {} was forked from process {}, which is rank {} of this launch, and "
                      "only that one is a rank: communicate there",
                      process, process_, launch.rank));
    }
  }

 private:
  void hold() {
    static_cast<void>(::listen(socket_.get(), kMostRefused));
    own_ = this;
    ::pthread_atfork(nullptr, nullptr, [] { own_->socket_.reset(); });
  }

  [[noreturn]] void refuse(const LaunchEnvironment& launch, pid_t holder) const {
    throw StateError(fmt::format(
        "rank {} of this launch is process {} already, and process {} was started with the same "
        "variables ({}), as programs that a rank starts are: it is no rank. To run it as a single "
        "process, start it without BFRUN_*, OMPI_COMM_WORLD_*, PMIX_*, PMI_*, RANK and WORLD_SIZE",
        launch.rank, holder == 0 ? std::string("another one") : fmt::format("{}", holder), process_,
        launch.stated_by));
  }

  // The one claim of a process: what is called after a fork takes no arguments.
  static inline RankClaim* own_ = nullptr;

  pid_t process_;
  shm::UniqueFd socket_;
};

}  // namespace

void claim_rank(const LaunchEnvironment& launch) {
  if (launch.job.empty() || launch.rank < 0) {
    return;
  }
  static const RankClaim claim(launch);
  claim.check(launch);
}

}  // namespace bluefog
