#include "bluefog_cpp/transport/shm/host_arena.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <new>

#include "bluefog_cpp/base/alignment.hpp"
#include "bluefog_cpp/base/system_limits.hpp"
#include "bluefog_cpp/error.hpp"

namespace bluefog::shm {
namespace {

constexpr std::uint64_t kMagic = 0x33616E6572616662U;  // "bfarena3"
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_SEAL;

[[noreturn]] void throw_system_error(const char* what, std::size_t bytes) {
  throw TransportError(
      fmt::format("shared memory: {} of {} bytes failed: {}", what, bytes, reason_of(errno)));
}

/// Checks that the machine has as much: it would end a process that touches more.
void check_memory(std::size_t bytes) {
  constexpr std::size_t kLarge = std::size_t{64} << 20U;
  if (bytes < kLarge) {
    return;
  }
  if (const std::uint64_t available = available_memory(); bytes > available) {
    throw TransportError(
        fmt::format("shared memory: {} bytes are needed, but of this machine's memory {} bytes are "
                    "available",
                    bytes, available));
  }
}

UniqueFd make_memory() {
#if defined(MFD_NOEXEC_SEAL)
  UniqueFd fd(::memfd_create("bluefog", MFD_CLOEXEC | MFD_NOEXEC_SEAL));
  if (fd || errno != EINVAL) {
    return fd;
  }
#endif
  return UniqueFd(::memfd_create("bluefog", MFD_CLOEXEC | MFD_ALLOW_SEALING));
}

/// Checks that places up to `end` may be backed: past the limit of a file's size the system would
/// end the process by a signal.
void check_file_size(std::uint64_t end) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && end > limit.rlim_cur) {
    throw TransportError(fmt::format(
        "shared memory: {} bytes are needed, but a file of this process may have {} bytes "
        "(RLIMIT_FSIZE, ulimit -f)",
        end, limit.rlim_cur));
  }
}

}  // namespace

/// The life lock of one rank's process, and its signs of life.
struct alignas(kCacheLine) Life {
  LifeLock lock;
  std::atomic<std::uint64_t> signs;
};

/// The first page.
struct HostArena::Head {
  std::uint64_t magic;
  /// The place of the life locks, of so many ranks.
  std::uint64_t lives;
  std::uint64_t ranks;
  /// The first place that nobody has taken.
  alignas(kCacheLine) std::atomic<std::uint64_t> next;
};

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Mapping::~Mapping() {
  if (data_ != nullptr) {
    ::munmap(data_, bytes_);
  }
}

std::shared_ptr<HostArena> HostArena::create(int ranks) {
  UniqueFd fd = make_memory();
  if (!fd) {
    throw_system_error("memfd_create", kPage);
  }
  const std::shared_ptr<HostArena> arena(new HostArena(std::move(fd), {}));
  arena->back(0, kPage);
  if (::fcntl(arena->fd(), F_ADD_SEALS, kSeals) != 0) {
    throw_system_error("sealing", kPage);
  }
  arena->head_mapping_ = arena->map(0, kPage);
  auto* const head = new (arena->head_mapping_.data()) Head{};
  head->magic = kMagic;
  head->ranks = static_cast<std::uint64_t>(ranks);
  head->next.store(2 * kPage, std::memory_order_release);
  head->lives = arena->take(head->ranks * sizeof(Life));
  arena->back(head->lives, head->ranks * sizeof(Life));
  arena->lives_mapping_ = arena->map(head->lives, head->ranks * sizeof(Life));
  for (int rank = 0; rank < ranks; ++rank) {
    auto* const life = reinterpret_cast<Life*>(arena->lives_mapping_.data()) + rank;
    (new (life) Life{})->lock.initialize();
  }
  return arena;
}

std::shared_ptr<HostArena> HostArena::adopt(UniqueFd fd) {
  struct stat status {};
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals || ::fstat(fd.get(), &status) != 0 ||
      status.st_size < static_cast<off_t>(kPage)) {
    throw TransportError(
        "shared memory set-up: expected memory that is sealed against shrinking, found another "
        "kind of file");
  }
  const std::shared_ptr<HostArena> arena(new HostArena(std::move(fd), {}));
  arena->head_mapping_ = arena->map(0, kPage);
  if (arena->head().magic != kMagic) {
    throw TransportError("shared memory set-up: expected an arena of this build, found another");
  }
  const Head& head = arena->head();
  arena->lives_mapping_ = arena->map(head.lives, head.ranks * sizeof(Life));
  return arena;
}

HostArena::~HostArena() {
  if (home_.is_forked()) {
    (void)keeper_.release();  // whose thread is the parent's
  } else if (life_ != nullptr) {
    keeper_->let_go(*life_);
  }
}

Life& HostArena::life_of(int rank) const noexcept {
  return std::launder(reinterpret_cast<Life*>(lives_mapping_.data()))[rank];
}

std::uint64_t HostArena::signs_of_life(int rank) const noexcept {
  return life_of(rank).signs.load(std::memory_order_relaxed);
}

HostArena::Head& HostArena::head() const noexcept {
  return *std::launder(reinterpret_cast<Head*>(head_mapping_.data()));
}

std::uint64_t HostArena::take(std::size_t bytes) noexcept {
  return head().next.fetch_add(round_up(bytes, kPage) + kPage, std::memory_order_relaxed);
}

void HostArena::back(std::uint64_t place, std::size_t bytes) {
  check_file_size(place + bytes);
  check_memory(bytes);
  int result = 0;
  do {
    result = ::fallocate(fd_.get(), 0, static_cast<off_t>(place), static_cast<off_t>(bytes));
  } while (result != 0 && errno == EINTR);
  if (result != 0) {
    throw_system_error("reservation", bytes);
  }
}

void HostArena::give_back(std::uint64_t place, std::size_t bytes) noexcept {
  // The memory stays where the system cannot take it back.
  (void)::fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                    static_cast<off_t>(place), static_cast<off_t>(bytes));
}

Mapping HostArena::map(std::uint64_t place, std::size_t bytes) const {
  void* const data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                            fd_.get(), static_cast<off_t>(place));
  if (data == MAP_FAILED) {
    throw_system_error("mmap", bytes);
  }
  return {static_cast<std::byte*>(data), bytes};
}

// A record lock is the process's own: children do not inherit it, and the system lets go of it when
// the process has ended and its memory is gone, so that no store of it comes after. The end may
// take a tenth of a second, for which waits need not last: the life lock shows it at once.
void HostArena::mark_alive(int rank, std::chrono::nanoseconds heartbeat) {
  if (home_.is_forked()) {
    (void)keeper_.release();  // whose thread is the parent's
  }
  Life& life = life_of(rank);
  keeper_ =
      heartbeat.count() == 0
          ? std::make_unique<LifeKeeper>()
          : std::make_unique<LifeKeeper>(
                [&life] { life.signs.fetch_add(1, std::memory_order_relaxed); }, heartbeat / 4);
  keeper_->hold(life.lock);
  life_ = &life.lock;
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = rank;
  lock.l_len = 1;
  if (::fcntl(fd_.get(), F_SETLK, &lock) != 0) {
    throw_system_error("a lock", 1);
  }
}

bool HostArena::is_alive(int rank) const noexcept {
  if (life_of(rank).lock.is_over()) {
    return false;
  }
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = rank;
  lock.l_len = 1;
  return ::fcntl(fd_.get(), F_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

}  // namespace bluefog::shm
