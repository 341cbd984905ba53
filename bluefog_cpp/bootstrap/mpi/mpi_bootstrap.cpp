#include "bluefog_cpp/bootstrap/mpi_bootstrap.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "bluefog_cpp/bootstrap/mpi/arrival_mark.hpp"
#include "bluefog_cpp/bootstrap/mpi/mpi_bootstrap_impl.hpp"
#include "bluefog_cpp/bootstrap/mpi/mpi_error.hpp"
#include "bluefog_cpp/bootstrap/mpi/mpi_runtime.hpp"
#include "bluefog_cpp/bootstrap/mpi/mpi_wait.hpp"
#include "bluefog_cpp/bootstrap/mpi/start_watch.hpp"
#include "bluefog_cpp/error.hpp"

namespace bluefog::mpi {

namespace {

// Blobs travel in units of this size: MPI counts and displacements are ints,
// and thousands of ranks may bring 16 MiB each.
constexpr std::uint64_t kUnit = 64;

// The longest wait of MPI_Finalize for ranks that did not come in time.
constexpr std::chrono::seconds kAfterTimeout(60);

std::uint64_t units_of(std::uint64_t bytes) { return (bytes + kUnit - 1) / kUnit; }

}  // namespace

struct MpiBootstrap::Flight {
  MPI_Request request = MPI_REQUEST_NULL;
  Frame frame{};
  std::vector<Frame> frames;
  Blob sent;
  Blob received;
  std::vector<int> counts;
  std::vector<int> displacements;
  UniqueDatatype unit;
  MPI_Comm comm = MPI_COMM_NULL;
};

MpiBootstrap::MpiBootstrap(UniqueComm comm, std::string obstacle)
    : comm_(std::move(comm)), obstacle_(std::move(obstacle)) {
  check(MPI_Comm_rank(comm_.get(), &rank_), "MPI_Comm_rank");
  check(MPI_Comm_size(comm_.get(), &size_), "MPI_Comm_size");
}

// A collective cannot be cancelled: memory that MPI may still write to is left to it.
MpiBootstrap::~MpiBootstrap() {
  if (abandoned_ && is_running()) {
    int done = 0;
    if (MPI_Test(&abandoned_->request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done == 0) {
      [[maybe_unused]] const Flight* flight = abandoned_.release();
      [[maybe_unused]] const MPI_Comm comm = comm_.release();
    }
  }
}

std::unique_ptr<MpiBootstrap::Flight> MpiBootstrap::run(Call call, std::unique_ptr<Flight> flight,
                                                        const std::function<int(Flight&)>& start,
                                                        Deadline deadline) {
  const std::string what = fmt::format("bootstrap {} on rank {}", to_string(call), rank_);
  if (!broken_.empty()) {
    throw StateError(fmt::format("{}: an earlier call failed: {}", what, broken_));
  }
  try {
    check(start(*flight), what, comm_.get());
    if (!wait(flight->request, deadline, look(), what, comm_.get())) {
      throw TimeoutError(
          fmt::format("{}: expected all {} ranks within {:.3g} s (BLUEFOG_TIMEOUT), one or more "
                      "have not come (MPI does not tell which)",
                      what, size_, deadline.timeout().count()));
    }
  } catch (const Error& error) {
    broken_ = error.what();
    abandoned_ = std::move(flight);
    limit_finalize(kAfterTimeout);
    throw;
  }
  return flight;
}

// Blobs go by way of rank 0: 2n messages, where Open MPI's all-gather that does not block takes n²,
// each with its connection.
std::vector<MpiBootstrap::Frame> MpiBootstrap::exchange_frames(Call call,
                                                               std::span<const std::byte> blob,
                                                               Deadline deadline) {
  constexpr int kRoot = 0;
  auto flight = std::make_unique<Flight>();
  flight->frame.call = call;
  flight->frame.bytes = blob.size();
  if (!blob.empty() && blob.size() <= kFrameBlobBytes) {
    std::memcpy(flight->frame.blob.data(), blob.data(), blob.size());
  }
  flight->frames.resize(size_);
  flight = run(
      call, std::move(flight),
      [this](Flight& f) {
        return MPI_Igather(&f.frame, sizeof(Frame), MPI_BYTE, f.frames.data(), sizeof(Frame),
                           MPI_BYTE, kRoot, comm_.get(), &f.request);
      },
      deadline);
  flight = run(
      call, std::move(flight),
      [this](Flight& f) {
        return MPI_Ibcast(f.frames.data(), static_cast<int>(f.frames.size() * sizeof(Frame)),
                          MPI_BYTE, kRoot, comm_.get(), &f.request);
      },
      deadline);
  const std::vector<Frame>& all = flight->frames;
  for (int other = 0; other < size_; ++other) {
    if (all[other].call != all[0].call) {
      throw MismatchError(fmt::format("bootstrap on rank {}: rank 0 called {}, rank {} called {}",
                                      rank_, to_string(all[0].call), other,
                                      to_string(all[other].call)));
    }
    if (all[other].bytes > kMaxBlobBytes) {
      throw TransportError(
          fmt::format("bootstrap {} on rank {}: rank {} announced {} bytes, at "
                      "most {} were expected",
                      to_string(call), rank_, other, all[other].bytes, kMaxBlobBytes));
    }
  }
  return std::move(flight->frames);
}

std::vector<Bootstrap::Blob> MpiBootstrap::allgather(std::span<const std::byte> blob,
                                                     Deadline deadline) {
  if (blob.size() > kMaxBlobBytes) {
    throw InvalidArgument(
        fmt::format("bootstrap allgather on rank {}: expected a blob of at most {} bytes, got {}",
                    rank_, kMaxBlobBytes, blob.size()));
  }
  const auto frames = exchange_frames(Call::Allgather, blob, deadline);
  const bool are_short = std::ranges::all_of(
      frames, [](const Frame& frame) { return frame.bytes <= kFrameBlobBytes; });
  if (!are_short) {
    return allgather_long(frames, blob, deadline);
  }
  std::vector<Blob> blobs;
  for (const Frame& frame : frames) {
    blobs.emplace_back(frame.blob.data(), frame.blob.data() + frame.bytes);
  }
  return blobs;
}

std::vector<Bootstrap::Blob> MpiBootstrap::allgather_long(const std::vector<Frame>& frames,
                                                          std::span<const std::byte> blob,
                                                          Deadline deadline) {
  auto flight = std::make_unique<Flight>();
  std::uint64_t units = 0;
  for (const Frame& frame : frames) {
    flight->counts.push_back(static_cast<int>(units_of(frame.bytes)));
    flight->displacements.push_back(static_cast<int>(units));
    units += units_of(frame.bytes);
  }
  flight->sent.assign(blob.begin(), blob.end());
  flight->sent.resize(units_of(blob.size()) * kUnit);
  flight->received.resize(units * kUnit);
  MPI_Datatype unit = MPI_DATATYPE_NULL;
  check(MPI_Type_contiguous(kUnit, MPI_BYTE, &unit), "MPI_Type_contiguous");
  flight->unit.reset(unit);
  check(MPI_Type_commit(&unit), "MPI_Type_commit");
  flight = run(
      Call::Allgather, std::move(flight),
      [this](Flight& f) {
        return MPI_Iallgatherv(f.sent.data(), f.counts[rank_], f.unit.get(), f.received.data(),
                               f.counts.data(), f.displacements.data(), f.unit.get(), comm_.get(),
                               &f.request);
      },
      deadline);

  std::vector<Blob> blobs;
  for (int rank = 0; rank < size_; ++rank) {
    const std::byte* begin = flight->received.data() + flight->displacements[rank] * kUnit;
    blobs.emplace_back(begin, begin + frames[rank].bytes);
  }
  return blobs;
}

void MpiBootstrap::compare_thread_levels(Deadline deadline) {
  const int own = thread_level();
  const auto blobs = allgather(std::as_bytes(std::span(&own, 1)), deadline);
  for (int other = 0; other < size_; ++other) {
    int level = MPI_THREAD_SINGLE;
    std::memcpy(&level, blobs[other].data(), std::min(sizeof level, blobs[other].size()));
    if (level < MPI_THREAD_MULTIPLE) {
      obstacle_ = fmt::format(
          "expected MPI_THREAD_MULTIPLE, found {} on rank {}, whose program initialised MPI itself",
          name_of_level(level), other);
      return;
    }
  }
}

void MpiBootstrap::barrier(Deadline deadline) {
  (void)exchange_frames(Call::Barrier, {}, deadline);
}

UniqueComm MpiBootstrap::duplicate_comm(Deadline deadline) {
  (void)exchange_frames(Call::Duplicate, {}, deadline);
  auto flight = run(
      Call::Duplicate, std::make_unique<Flight>(),
      [this](Flight& f) { return MPI_Comm_idup(comm_.get(), &f.comm, &f.request); }, deadline);
  return UniqueComm(flight->comm);
}

std::shared_ptr<Bootstrap> MpiBootstrap::duplicate(Deadline deadline) {
  return std::make_shared<MpiBootstrap>(duplicate_comm(deadline), obstacle_);
}

bool is_available() noexcept { return true; }

int size_of_running_world() noexcept {
  int size = 0;
  return is_running() && MPI_Comm_size(MPI_COMM_WORLD, &size) == MPI_SUCCESS ? size : 0;
}

namespace {

struct Duplication {
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Request request = MPI_REQUEST_NULL;
};

// Duplicates MPI_COMM_WORLD.
UniqueComm meet_all_ranks(StartWatch watch) {
  auto duplication = std::make_unique<Duplication>();
  check(MPI_Comm_idup(MPI_COMM_WORLD, &duplication->comm, &duplication->request), "MPI_Comm_idup");
  try {
    wait(
        duplication->request, [&watch] { watch.look(); }, "MPI_Comm_idup", MPI_COMM_WORLD);
  } catch (...) {
    // MPI will write the communicator when the other ranks come.
    [[maybe_unused]] const Duplication* left_to_mpi = duplication.release();
    limit_finalize(kAfterTimeout);
    throw;
  }
  return UniqueComm(duplication->comm);
}

// An MPI that does not know the launcher makes each process rank 0 of 1.
void refuse_fewer_ranks(const LaunchEnvironment& launch, int rank, int size) {
  if (size < launch.size) {
    throw UnsupportedError(fmt::format(
        "{} say that {} started {} processes: expected MPI to find as many ranks, found that this "
        "one is rank {} of {}; start them with bfrun, with the mpirun of the same MPI or with srun "
        "--mpi=pmix, or unset them to run as a single process",
        launch.stated_by, launch.launcher, launch.size, rank, size));
  }
}

std::shared_ptr<Bootstrap> meet(LaunchEnvironment launch, const Settings& settings,
                                Deadline deadline, const std::function<void()>& interrupt_check) {
  StartWatch watch(launch, settings, deadline, interrupt_check);
  const bool has_waited = require_runtime(watch);
  int size = 0;
  check(MPI_Comm_rank(MPI_COMM_WORLD, &launch.rank), "MPI_Comm_rank");
  check(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size");
  refuse_fewer_ranks(launch, launch.rank, size);
  launch.size = size;
  // Ranks that MPI's start has waited for are there, however late they came.
  UniqueComm comm = meet_all_ranks(
      StartWatch(launch, settings, has_waited ? deadline.again() : deadline, interrupt_check));
  check(MPI_Comm_set_errhandler(comm.get(), MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  auto bootstrap = std::make_shared<MpiBootstrap>(std::move(comm));
  bootstrap->compare_thread_levels(has_waited ? deadline.again() : deadline);
  return bootstrap;
}

}  // namespace

std::shared_ptr<Bootstrap> make_bootstrap(const LaunchEnvironment& launch, const Settings& settings,
                                          Deadline deadline,
                                          std::function<void()> interrupt_check) {
  auto mark = std::make_unique<ArrivalMark>(launch.job, launch.rank);
  try {
    return meet(launch, settings, deadline, interrupt_check);
  } catch (const TimeoutError&) {
    // Ranks that give up after this one see that it had come.
    [[maybe_unused]] const ArrivalMark* until_the_end = mark.release();
    throw;
  }
}

}  // namespace bluefog::mpi
