#include "bluefog_cpp/bootstrap/default_bootstrap.hpp"

#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>

#include "bluefog_cpp/base/exit_note.hpp"
#include "bluefog_cpp/base/system_limits.hpp"
#include "bluefog_cpp/bootstrap/mpi_bootstrap.hpp"
#include "bluefog_cpp/bootstrap/own_problem.hpp"
#include "bluefog_cpp/bootstrap/rank_claim.hpp"
#include "bluefog_cpp/error.hpp"
#include "bluefog_cpp/log.hpp"
#include "bluefog_cpp/store/ended_ranks.hpp"
#include "bluefog_cpp/store/store_server.hpp"
#include "bluefog_cpp/store/tcp_store.hpp"
#include "bluefog_cpp/thread_bootstrap.hpp"

namespace bluefog {

namespace {

Logger logger_of(const Settings& settings, int rank) {
  return Logger({.level = settings.log_level, .hide_time = settings.log_hide_time, .rank = rank});
}

void say_choice(const Settings& settings, const Bootstrap& bootstrap, const std::string& by) {
  if (bootstrap.rank() == 0) {
    logger_of(settings, 0)
        .info(fmt::format("{} rank{}, started by {}", bootstrap.size(),
                          bootstrap.size() == 1 ? "" : "s", by));
  }
}

// A process that asks to be taken in is none of the ranks of the launch, and a rank once it has been.
void report_start(const Settings& settings, const LaunchEnvironment& launch) {
  if (!settings.joins) {
    claim_rank(launch);
    report_joining();
  }
}

// bfrun's own launcher starts no MPI: one that the program has started knows this process alone.
void refuse_lonely_mpi(const LaunchEnvironment& launch) {
  if (launch.way == LaunchWay::Bfrun && launch.size > 1 && mpi::size_of_running_world() == 1) {
    throw UnsupportedError(fmt::format(
        "{} say that bfrun started {} processes, and MPI, which this program has initialised, found "
        "itself alone: expected a program without MPI of its own; start it with bfrun --launcher "
        "mpirun",
        launch.stated_by, launch.size));
  }
}

bool can_listen_on(const std::string& host) {
  try {
    (void)store::StoreServer({.host = host});
    return true;
  } catch (const TransportError&) {
    return false;
  }
}

// The host to listen on for ranks that come to `host`: that one, if that is an address of this
// machine. Each rank may find an address of either family behind a name.
std::string listening_host(const std::string& host) {
  if (host == "localhost") {
    return "127.0.0.1";
  }
  if (can_listen_on(host)) {
    return host;
  }
  return can_listen_on("::") ? "::" : "0.0.0.0";
}

// The store that rank 0 keeps for the others, as long as its process lives.
void serve_store(const store::StoreAddress& address, int ranks) {
  static const auto server = [&address, ranks] {
    auto made = std::make_unique<store::StoreServer>(store::StoreAddress{
        .host = listening_host(address.host), .port = address.port, .secret = address.secret});
    made->start(fmt::format("it keeps the store of {} ranks, and needs one for each", ranks));
    return made;
  }();
}

std::shared_ptr<Store> store_of(const LaunchEnvironment& launch, const Settings& settings) {
  if (launch.way == LaunchWay::Torchrun) {
    throw UnsupportedError(fmt::format(
        "{} say that torchrun started {} processes, which meet in a store of torch at {}: expected "
        "a program that hands a store over (Context::create with a Store), found none; or start them "
        "with bfrun",
        launch.stated_by, launch.size, launch.store));
  }
  store::StoreAddress address = store::parse_store_address("store", launch.store);
  address.secret = launch.secret;
  if (!launch.is_store_served && launch.rank == 0) {
    serve_store(address, launch.size);
  }
  return store::make_tcp_store(
      address, {.name = launch.way == LaunchWay::Bfrun ? "bfrun's store" : "the store of rank 0",
                .server = launch.is_store_served ? store::TcpStoreOptions::Server::IsThere
                                                 : store::TcpStoreOptions::Server::MayComeLater,
                .on_absence = [log = logger_of(settings, launch.rank)](const std::string& why) {
                  log.warning(why);
                }});
}

}  // namespace

std::shared_ptr<Bootstrap> make_default_bootstrap(const Settings& settings, Deadline deadline,
                                                  std::function<void()> interrupt_check) {
  const LaunchEnvironment launch = LaunchEnvironment::detect();
  if (launch.way == LaunchWay::Single ||
      (launch.way == LaunchWay::Mpi && launch.size == 1 && !mpi::is_available())) {
    auto bootstrap = make_thread_bootstraps(1).front();
    say_choice(settings, *bootstrap, "no launcher");
    return bootstrap;
  }
  refuse_lonely_mpi(launch);
  raise_descriptor_limit();
  report_start(settings, launch);
  if (launch.way == LaunchWay::Mpi) {
    auto bootstrap = start_with(settings, [&] {
      return mpi::make_bootstrap(launch, settings, deadline, std::move(interrupt_check));
    });
    say_choice(settings, *bootstrap, fmt::format("{} ({})", launch.launcher, launch.stated_by));
    return bootstrap;
  }
  return join_over_store(store_of(launch, settings), launch, settings, deadline,
                         std::move(interrupt_check));
}

std::shared_ptr<Bootstrap> join_over_store(std::shared_ptr<Store> store,
                                           const LaunchEnvironment& launch,
                                           const Settings& settings, Deadline deadline,
                                           std::function<void()> interrupt_check) {
  raise_descriptor_limit();
  report_start(settings, launch);
  const std::string place = store ? store->description() : std::string();
  auto bootstrap = make_store_bootstrap(
      std::move(store),
      {.rank = launch.rank,
       .size = launch.size,
       .prefix = launch.prefix,
       .ended_key = std::string(launch.way == LaunchWay::Bfrun ? store::kEndedRanksKey : ""),
       .has_attempts = launch.has_attempts},
      settings, deadline, std::move(interrupt_check));
  say_choice(settings, *bootstrap,
             fmt::format("{} ({}), over {}", launch.launcher, launch.stated_by, place));
  return bootstrap;
}

}  // namespace bluefog
