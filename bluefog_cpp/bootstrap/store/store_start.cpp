// The start of ranks in a store: they greet each other there.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "bluefog_cpp/base/files/take_line.hpp"
#include "bluefog_cpp/base/version.hpp"
#include "bluefog_cpp/bootstrap/own_problem.hpp"
#include "bluefog_cpp/bootstrap/store/applicant_bootstrap.hpp"
#include "bluefog_cpp/bootstrap/store/attempt.hpp"
#include "bluefog_cpp/bootstrap/store/beside.hpp"
#include "bluefog_cpp/bootstrap/store/store_bootstrap.hpp"
#include "bluefog_cpp/bootstrap/store/store_exchange.hpp"
#include "bluefog_cpp/bootstrap/store/words.hpp"
#include "bluefog_cpp/error.hpp"
#include "bluefog_cpp/store_bootstrap.hpp"

namespace bluefog {

namespace {

std::string_view text_of(const Bootstrap::Blob& blob) {
  return {reinterpret_cast<const char*>(blob.data()), blob.size()};
}

Bootstrap::Blob blob_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

/// The words with which ranks greet each other, a line each. Versions to come keep the first two.
struct Greeting {
  std::string version;
  std::string size;
  std::string process;  ///< of no other process
};

std::string to_text(const Greeting& greeting) {
  return fmt::format("{}\n{}\n{}", greeting.version, greeting.size, greeting.process);
}

Greeting greeting_from(std::string_view text) {
  Greeting greeting;
  greeting.version = take_line(text);
  greeting.size = take_line(text);
  greeting.process = take_line(text);
  return greeting;
}

// The same when this process tries again; threads may be ranks of their own.
std::string process_name() {
  static const std::string name = [] {
    std::random_device device;
    return fmt::format("{}-{:08x}{:08x}", ::getpid(), device(), device());
  }();
  return fmt::format("{}-{}", name, std::hash<std::thread::id>{}(std::this_thread::get_id()));
}

std::string compare(const Greeting& own, int rank, const Greeting& other) {
  if (own.version != other.version) {
    return fmt::format(
        "expected the same version of bluefog_cpp on all ranks, rank 0 has {}, rank "
        "{} has {}",
        own.version, rank, other.version);
  }
  if (own.size != other.size) {
    return fmt::format(
        "expected the same number of ranks on all ranks, rank 0 was told {}, rank {} "
        "was told {}",
        own.size, rank, other.size);
  }
  return {};
}

void check(const StorePlace& place, const Store* store) {
  if (store == nullptr) {
    throw InvalidArgument("make_store_bootstrap: expected a store, found none");
  }
  if (place.size < 1 || place.rank < 0 || place.rank >= place.size) {
    throw InvalidArgument(
        fmt::format("make_store_bootstrap: expected a rank from 0 to {} and a size of 1 or more, "
                    "found rank {} of {}",
                    std::max(place.size, 1) - 1, place.rank, place.size));
  }
  constexpr std::size_t kRoomForMore = 128;
  const bool is_key = std::ranges::all_of(place.prefix, [](char c) { return c > ' ' && c < 127; });
  if (place.prefix.empty() || !is_key || place.prefix.size() + kRoomForMore > Store::kMaxKeyBytes) {
    throw InvalidArgument(
        fmt::format("make_store_bootstrap on rank {}: expected a prefix of 1 to {} printable ASCII "
                    "characters without blanks, found '{}'",
                    place.rank, Store::kMaxKeyBytes - kRoomForMore, place.prefix));
  }
}

/// The number of a key that counts this rank's meetings: all ranks are at the same one.
std::string count_key(const StorePlace& place) {
  return fmt::format("{}/met/{}", place.prefix, place.rank);
}

std::int64_t count_meetings(const std::shared_ptr<Store>& store, const StorePlace& place,
                            std::int64_t more, Deadline deadline,
                            const std::function<void()>& interrupt_check) {
  const std::string what =
      fmt::format("bootstrap start on rank {}, over {}", place.rank, store->description());
  const auto count = std::make_shared<std::int64_t>(0);
  try {
    run_beside([store, key = count_key(place), more, count,
                deadline](const auto&) { *count = store->add(key, more, deadline); },
               interrupt_check, deadline, what);
  } catch (const TransportError& error) {
    throw TransportError(fmt::format("{}: {}", what, error.what()));
  }
  return *count;
}

std::shared_ptr<Bootstrap> start_in_store(std::shared_ptr<Store> store, const StorePlace& in_launch,
                                          const Settings& settings, Deadline deadline,
                                          const std::function<void()>& interrupt_check) {
  if (settings.joins) {
    return make_applicant_bootstrap(std::move(store), in_launch, settings, deadline,
                                    interrupt_check);
  }
  StorePlace place = in_launch;
  if (place.has_attempts && place.size > 1) {
    place.prefix += "/" + agree_on_attempt(store, place, settings, deadline, interrupt_check);
  }
  const std::int64_t meeting = count_meetings(store, place, 0, deadline, interrupt_check);
  const auto exchange = std::make_shared<StoreExchange>(StoreExchange::Place{
      .store = std::move(store),
      .rank = place.rank,
      .size = place.size,
      .prefix = fmt::format("{}/m{}", place.prefix, meeting),
      .root = fmt::format("{}/m{}", place.prefix, meeting),
      .may_grow = settings.on_failure == OnFailure::Shrink,
      .launch_rank = place.rank,
      .ended_key = place.ended_key,
      .stall_warning = settings.stall_warning,
      .timeout_name = settings.timeout_name,
      .log = Logger(
          {.level = settings.log_level, .hide_time = settings.log_hide_time, .rank = place.rank})});
  const Greeting own{place.version.empty() ? own_version() : place.version,
                     std::to_string(place.size), process_name()};
  const auto judge = [own](int rank, const StoreRecord& record) {
    return compare(own, rank, greeting_from(text_of(record.blob)));
  };
  const auto records = run_in_store(exchange, {BootstrapCall::Start, blob_of(to_text(own))}, judge,
                                    deadline, interrupt_check);
  const Greeting found = greeting_from(text_of(records[static_cast<std::size_t>(place.rank)].blob));
  if (found.process != own.process) {
    throw StateError(fmt::format(
        "{}: another process has come as rank {} (process {} there, process {} here): expected a "
        "rank of its own for each process, and another prefix for each launch",
        exchange->name_of(BootstrapCall::Start), place.rank,
        found.process.substr(0, found.process.find('-')), ::getpid()));
  }
  if (exchange->place().may_grow) {
    exchange->begin_membership();
    if (place.rank == 0) {
      exchange->place().store->set(running_key(in_launch), bytes_of(exchange->place().root),
                                   deadline);
    }
  }
  count_meetings(exchange->place().store, place, 1, deadline, interrupt_check);
  return std::make_shared<StoreBootstrap>(exchange);
}

}  // namespace

std::shared_ptr<Bootstrap> make_store_bootstrap(std::shared_ptr<Store> store,
                                                const StorePlace& in_launch,
                                                const Settings& settings, Deadline deadline,
                                                std::function<void()> interrupt_check) {
  check(in_launch, store.get());
  return start_with(settings, [&] {
    return start_in_store(std::move(store), in_launch, settings, deadline, interrupt_check);
  });
}

}  // namespace bluefog
