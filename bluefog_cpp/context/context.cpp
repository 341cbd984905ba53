#include "bluefog_cpp/context.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "bluefog_cpp/base/trace/trace.hpp"
#include "bluefog_cpp/context/context_core.hpp"
#include "bluefog_cpp/device/device_channel.hpp"
#include "bluefog_cpp/error.hpp"

namespace bluefog {

namespace {

/// Another number of ranks than was asked for, in words; empty where all is well.
std::string size_problem(const Settings& settings, int size) {
  return settings.expect_size == 0 || settings.expect_size == size
             ? std::string()
             : fmt::format(
                   "BLUEFOG_EXPECT_SIZE={}: expected that many ranks, found {}; see by "
                   "BLUEFOG_LOG_LEVEL=info who is said to have started them",
                   settings.expect_size, size);
}

/// Why ranks cannot go on without one of them, in words; empty where they can.
std::string shrink_problem(const Bootstrap& bootstrap) {
  return bootstrap.regroup_obstacle().empty()
             ? std::string()
             : fmt::format(
                   "BLUEFOG_ON_FAILURE=shrink: expected ranks that met in a store (bfrun on one "
                   "host, torchrun, RANK and WORLD_SIZE), found a start by '{}': {}",
                   bootstrap.name(), bootstrap.regroup_obstacle());
}

/// Ends the start of a smaller group where another of its ranks is lost or has given it up, or the
/// user interrupts it.
class WatchForLosses {
 public:
  WatchForLosses(const Bootstrap::Regrouped& left, Engine& engine) : bootstrap_(*left.bootstrap) {
    bootstrap_.set_look([&left, &engine] {
      engine.check_interrupt();
      for (const int rank : left.ranks) {
        if (const auto cause = cause_of_end(left, engine, rank)) {
          throw PeerFailure(rank, *cause);
        }
      }
      if (left.is_given_up()) {
        throw PeerFailure(-1, "another rank has given this group up");
      }
      if (const auto cause = left.why_joined_gone ? left.why_joined_gone() : std::nullopt) {
        throw PeerFailure(-1, *cause);
      }
    });
  }
  ~WatchForLosses() { bootstrap_.set_look({}); }
  WatchForLosses(const WatchForLosses&) = delete;
  WatchForLosses& operator=(const WatchForLosses&) = delete;

 private:
  static std::optional<std::string> cause_of_end(const Bootstrap::Regrouped& left, Engine& engine,
                                                 int rank) {
    const auto own = static_cast<std::size_t>(left.bootstrap->rank());
    return rank == left.ranks[own] ? std::nullopt : engine.cause_of_death(rank);
  }

  Bootstrap& bootstrap_;
};

// A trace has the ranks of each group, from where on it is the group.
void mark_epoch(const ContextCore& core) {
  if (Timeline* const timeline = core.timeline()) {
    const Membership& members = core.membership();
    timeline->mark("MEMBERSHIP", fmt::format("EPOCH {}: RANKS {}", members.epoch,
                                             fmt::join(members.ranks, ", ")));
  }
}

}  // namespace

std::shared_ptr<Context> Context::create(std::shared_ptr<Bootstrap> bootstrap,
                                         const Settings& settings) {
  std::shared_ptr<Context> context(
      new Context(std::make_unique<ContextCore>(std::move(bootstrap), settings)));
  std::string problem = settings.problem;
  if (problem.empty() && !context->is_applicant()) {
    problem = size_problem(settings, context->size());
  }
  if (settings.on_failure == OnFailure::Shrink && problem.empty()) {
    problem = shrink_problem(context->core().bootstrap());
  }
  if (settings.joins && !context->is_applicant() && problem.empty()) {
    problem = fmt::format(
        "BLUEFOG_JOIN=1: expected ranks that met in a store (bfrun on one host, torchrun, RANK and "
        "WORLD_SIZE) to join, found a start by '{}'",
        context->core().bootstrap().name());
  }
  try {
    context->core().open_files();
  } catch (const InvalidArgument& error) {  // which the other ranks have to hear of
    problem = error.what();
  }
  if (context->rank() == 0) {
    for (const std::string& notice : settings.notices) {
      context->log().warning(notice);
    }
  }
  context->connect(problem);
  return context;
}

Context::Context(std::unique_ptr<ContextCore> core)
    : core_(std::move(core)), rank_(core_->rank()), size_(core_->size()) {}

Context::~Context() { close(); }

void Context::connect(const std::string& problem) {
  core_->connect(problem);
  shutdown_guard_ = core_->bootstrap().before_shutdown([weak = weak_from_this()] {
    if (const auto context = weak.lock()) {
      context->close();
    }
  });
}

const MachineLayout& Context::hosts() const noexcept { return core_->hosts(); }
const MachineLayout& Context::machines() const noexcept { return core_->machines(); }
const Settings& Context::settings() const noexcept { return core_->settings(); }
const Logger& Context::log() const noexcept { return core_->log(); }
bool Context::uses_network() const noexcept { return core_->uses_network(); }

int Context::local_rank() const { return machines().local_rank_of(rank()); }

int Context::local_size() const {
  return static_cast<int>(machines().ranks_of(machines().machine_of(rank())).size());
}

std::string_view Context::transport_to(int peer) const {
  if (peer == rank()) {
    return "self";
  }
  (void)hosts().machine_of(peer);  // checks the range
  return core_->engine().transport_to(peer).name();
}

std::shared_ptr<Context> Context::duplicate() {
  const Engine::LargerCall whole(core_->engine());
  std::shared_ptr<Context> copy(new Context(core_->duplicate()));
  copy->connect({});
  return copy;
}

std::shared_ptr<Context> Context::shrink() { return among_the_living(false); }

std::shared_ptr<Context> Context::regroup() { return among_the_living(true); }

std::shared_ptr<Context> Context::among_the_living(bool admits) {
  if (core_->engine().is_closed()) {
    throw StateError(fmt::format("rank {}, shrink: the context is closed", rank()));
  }
  std::optional<std::vector<int>> late;  // in the last group that has not come about
  while (true) {
    const Bootstrap::Regrouped left = core_->regroup(admits);
    std::shared_ptr<Context> group(new Context(core_->among(left)));
    std::exception_ptr problem;
    bool is_ready = false;
    try {
      const WatchForLosses watch(left, core_->engine());
      if (left.joined > 0) {
        group->core().tell_newcomers(is_applicant());
      }
      group->connect({});
      is_ready = true;
    } catch (const PeerFailure&) {  // the others find it too, and all try again
    } catch (const std::exception& error) {
      const bool is_first_timeout =
          dynamic_cast<const TimeoutError*>(&error) != nullptr && late != left.ranks;
      if (left.joined > 0 && !is_applicant()) {
        if (rank() == 0) {  // it may be theirs that are new, without whom all try again
          log().warning(fmt::format("ranks that were to join are turned away: {}", error.what()));
        }
      } else if (is_first_timeout) {  // who was stopped since the meeting comes to no other one
        late = left.ranks;
      } else {
        problem = std::current_exception();
      }
    }
    const bool are_all_ready = left.settle(is_ready, Deadline::after(settings().timeout));
    if (problem) {
      std::rethrow_exception(problem);
    }
    if (are_all_ready) {
      group->core().watch_for_losses();
      mark_epoch(group->core());
      close();
      return group;
    }
  }
}

bool Context::has_applicants() { return core_->bootstrap().has_applicants(); }

bool Context::is_applicant() const noexcept { return core_->bootstrap().is_applicant(); }

const Membership& Context::membership() const noexcept { return core_->membership(); }

void Context::resync() { core_->resync(); }

void Context::use_device(int device) { core_->use_device(device, nullptr); }

std::optional<int> Context::device() const noexcept {
  const auto& channel = core_->device();
  return channel ? std::optional(channel->device()) : std::nullopt;
}

void Context::set_interrupt_check(std::function<void()> check) {
  core_->engine().set_interrupt_check(std::move(check));
}

std::shared_ptr<std::byte> Context::allocate_shared(std::size_t bytes) {
  return core_->allocate_shared(bytes);
}

void Context::close() noexcept { core_->close(); }

}  // namespace bluefog
