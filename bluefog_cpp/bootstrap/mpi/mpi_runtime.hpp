#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "bluefog_cpp/bootstrap/mpi/start_watch.hpp"

namespace bluefog::mpi {

/// Makes sure that MPI is usable from more than one thread.
///
/// If nobody has initialised MPI, does so with MPI_THREAD_MULTIPLE, and
/// finalises it when the process exits: MPI cannot be started twice, and
/// contexts may come and go. MPI that others initialised is never finalised
/// here.
/// @param watch looks while the ranks come, as MPI's start waits for all of them.
/// @return whether this call has waited for that.
/// @throws UnsupportedError if MPI is already finalised, or its thread level is
///         below MPI_THREAD_SERIALIZED. @throws TimeoutError of `watch`; the next call waits for
///         the same start. @throws MpiError.
bool require_runtime(StartWatch& watch);

/// The thread level that MPI gave when it was initialised. @throws MpiError.
[[nodiscard]] int thread_level();
/// "MPI_THREAD_SERIALIZED".
[[nodiscard]] const char* name_of_level(int level) noexcept;

/// Notes that another rank's process has failed: MPI's own word of it may come late at the end.
void note_process_failure() noexcept;
/// Limits MPI_Finalize, where this project calls it, since another rank has not come in time: to
/// `longest`, and no less than a minute; to 10 s where the process exits with an error, which ends
/// the job anyway.
void limit_finalize(std::chrono::nanoseconds longest) noexcept;

/// Calls `leave` when MPI_Finalize begins, whoever calls that, as long as the caller keeps the
/// result. `leave` must not throw.
[[nodiscard]] std::shared_ptr<void> before_finalize(std::function<void()> leave);

/// True between MPI_Init and MPI_Finalize: handles may be freed.
[[nodiscard]] bool is_running() noexcept;

}  // namespace bluefog::mpi
