#include "bluefog_cpp/bootstrap/mpi/mpi_runtime.hpp"

#include <fmt/format.h>
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <utility>

#include "bluefog_cpp/base/exit_note.hpp"
#include "bluefog_cpp/bootstrap/leave_hooks.hpp"
#include "bluefog_cpp/bootstrap/mpi/mpi_error.hpp"
#include "bluefog_cpp/bootstrap/mpi/mpi_start.hpp"
#include "bluefog_cpp/error.hpp"

namespace bluefog::mpi {

namespace {

bool flag_of(int (*query)(int*)) noexcept {
  int flag = 0;
  return query(&flag) == MPI_SUCCESS && flag != 0;
}

using std::chrono::nanoseconds;

// Whether another process has failed; the longest wait for one that did not come in time (0: no
// limit); the exit code of this process.
std::atomic<bool> saw_failure{false};
std::atomic<nanoseconds> limit{nanoseconds(0)};
std::atomic<int> exit_status{0};

constexpr nanoseconds kAfterFailure = std::chrono::seconds(10);
/// The shortest limit after a good end: others may be on their way, however short the waits were.
constexpr nanoseconds kLeastPatience = std::chrono::seconds(60);

/// The longest time that MPI_Finalize may take; 0: no limit.
nanoseconds finalize_limit() {
  // An error ends the job: others that compute on need not be waited for.
  if (saw_failure || exit_status != 0) {
    return kAfterFailure;
  }
  const nanoseconds longest = limit;
  return longest == nanoseconds(0) ? longest : std::max(longest, kLeastPatience);
}

void keep_exit_status(int status, void*) {
  exit_status = status;
  if (is_running()) {
    leave_exit_note(status);
  }
}

// Ends the process with its own exit code where MPI_Finalize does not end. MPI_Finalize waits for a
// fence of all processes, which one that is stuck never reaches; Open MPI 5 at times never ends it
// once a process has failed, less often when its launcher has had time to hear of the failure.
class FinalizeWatchdog {
 public:
  explicit FinalizeWatchdog(nanoseconds longest) : longest_(longest) {
    if (saw_failure) {
      constexpr std::chrono::seconds kForTheLauncher(1);
      std::this_thread::sleep_for(kForTheLauncher);
    }
    thread_ = std::thread([this] { watch(); });
  }
  FinalizeWatchdog(const FinalizeWatchdog&) = delete;
  FinalizeWatchdog& operator=(const FinalizeWatchdog&) = delete;
  ~FinalizeWatchdog() {
    {
      const std::scoped_lock lock(mutex_);
      is_over_ = true;
    }
    ended_.notify_one();
    thread_.join();
  }

 private:
  void watch() {
    std::unique_lock lock(mutex_);
    if (!ended_.wait_for(lock, longest_, [this] { return is_over_; })) {
      std::fflush(nullptr);
      ::_exit(exit_status);
    }
  }

  nanoseconds longest_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool is_over_ = false;
  std::thread thread_;
};

// The functions to call when MPI_Finalize begins. MPI calls the delete functions of MPI_COMM_SELF's
// attributes first, while it is still usable.
class FinalizeHooks {
 public:
  // Never destroyed: MPI_Finalize may come after static objects have gone.
  static FinalizeHooks& instance() {
    static auto* const hooks = new FinalizeHooks;
    return *hooks;
  }

  std::shared_ptr<void> add(std::function<void()> leave) { return hooks_.add(std::move(leave)); }
  void run() { hooks_.run(); }

 private:
  FinalizeHooks() {
    int key = MPI_KEYVAL_INVALID;
    check(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, on_finalize, &key, nullptr),
          "MPI_Comm_create_keyval");
    check(MPI_Comm_set_attr(MPI_COMM_SELF, key, this), "MPI_Comm_set_attr");
  }

  static int on_finalize(MPI_Comm, int, void* attribute, void*) {
    static_cast<FinalizeHooks*>(attribute)->run();
    return MPI_SUCCESS;
  }

  LeaveHooks hooks_;
};

// Owns MPI's life if it began here. One object per process, like MPI itself.
class Runtime {
 public:
  explicit Runtime(bool is_ours) : owner_(is_ours ? ::getpid() : -1) {}
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;
  ~Runtime() {
    // A child after a fork must not finalise its parent's MPI.
    if (owner_ != ::getpid() || !is_running()) {
      return;
    }
    FinalizeHooks::instance().run();  // a context may only then see a failure
    if (const nanoseconds longest = finalize_limit(); longest > nanoseconds(0)) {
      const FinalizeWatchdog watchdog(longest);
      MPI_Finalize();
    } else {
      MPI_Finalize();
    }
  }

 private:
  pid_t owner_;
};

}  // namespace

int thread_level() {
  int level = MPI_THREAD_SINGLE;
  check(MPI_Query_thread(&level), "MPI_Query_thread");
  return level;
}

const char* name_of_level(int level) noexcept {
  switch (level) {
    case MPI_THREAD_SINGLE:
      return "MPI_THREAD_SINGLE";
    case MPI_THREAD_FUNNELED:
      return "MPI_THREAD_FUNNELED";
    case MPI_THREAD_SERIALIZED:
      return "MPI_THREAD_SERIALIZED";
    default:
      return "MPI_THREAD_MULTIPLE";
  }
}

void note_process_failure() noexcept { saw_failure = true; }

void limit_finalize(nanoseconds longest) noexcept { limit = longest; }

std::shared_ptr<void> before_finalize(std::function<void()> leave) {
  return FinalizeHooks::instance().add(std::move(leave));
}

bool is_running() noexcept { return flag_of(MPI_Initialized) && !flag_of(MPI_Finalized); }

bool require_runtime(StartWatch& watch) {
  if (flag_of(MPI_Finalized)) {
    throw UnsupportedError("MPI was finalised in this process and cannot be started again");
  }
  static MpiStart start;
  const bool is_running_already = is_running();
  start.wait([&watch] { watch.look(); });
  static const Runtime runtime(start.is_ours());
  // Registered after the runtime, and so called before its end: what was registered last runs
  // first.
  static const int registered = ::on_exit(keep_exit_status, nullptr);
  static_cast<void>(registered);
  const int level = thread_level();
  if (level < MPI_THREAD_SERIALIZED) {
    throw UnsupportedError(
        fmt::format("MPI was initialised with {}: expected MPI_THREAD_MULTIPLE, or at least "
                    "MPI_THREAD_SERIALIZED (call MPI_Init_thread in place of MPI_Init)",
                    name_of_level(level)));
  }
  return !is_running_already;
}

}  // namespace bluefog::mpi
