#include "bluefog_cpp/transport/doorbell.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace bluefog {
namespace {

// std::atomic::wait does not wake threads of other processes.
long futex(std::atomic<std::uint32_t>* word, int operation, std::uint32_t value,
           const timespec* timeout) noexcept {
  return ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(word), operation, value, timeout,
                   nullptr, 0);
}

}  // namespace

Doorbell::Sleeper::Sleeper(Doorbell& doorbell) noexcept : doorbell_(doorbell) {
  doorbell_.sleepers_.fetch_add(1, std::memory_order_seq_cst);
}

Doorbell::Sleeper::~Sleeper() { doorbell_.sleepers_.fetch_sub(1, std::memory_order_seq_cst); }

std::uint32_t Doorbell::Sleeper::ticket() const noexcept {
  return doorbell_.sequence_.load(std::memory_order_seq_cst);
}

bool Doorbell::Sleeper::sleep(std::uint32_t ticket,
                              std::chrono::microseconds timeout) const noexcept {
  const auto count = timeout.count();
  const timespec duration{static_cast<time_t>(count / 1'000'000),
                          static_cast<long>(count % 1'000'000) * 1000};
  return futex(&doorbell_.sequence_, FUTEX_WAIT, ticket, &duration) == 0 ||
         doorbell_.sequence_.load(std::memory_order_seq_cst) != ticket;
}

void Doorbell::wake() noexcept {
  sequence_.fetch_add(1, std::memory_order_seq_cst);
  futex(&sequence_, FUTEX_WAKE, INT_MAX, nullptr);
}

}  // namespace bluefog
