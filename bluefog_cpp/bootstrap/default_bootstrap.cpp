#include "bluefog_cpp/bootstrap/default_bootstrap.hpp"

#include <utility>

#include "bluefog_cpp/base/exit_note.hpp"
#include "bluefog_cpp/bootstrap/launch_environment.hpp"
#include "bluefog_cpp/bootstrap/mpi_bootstrap.hpp"
#include "bluefog_cpp/bootstrap/rank_claim.hpp"
#include "bluefog_cpp/thread_bootstrap.hpp"

namespace bluefog {

std::shared_ptr<Bootstrap> make_default_bootstrap(const Settings& settings, Deadline deadline,
                                                  std::function<void()> interrupt_check) {
  const LaunchEnvironment environment = LaunchEnvironment::detect();
  // A single rank can do without MPI where MPI was not built in.
  if (environment.launched() && (mpi::is_built() || environment.size != 1)) {
    claim_rank(environment);
    tell_joining();
    return mpi::make_bootstrap(environment, settings, deadline, std::move(interrupt_check));
  }
  return make_thread_bootstraps(1).front();
}

}  // namespace bluefog
