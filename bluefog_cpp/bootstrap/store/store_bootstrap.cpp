#include "bluefog_cpp/bootstrap/store/store_bootstrap.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "bluefog_cpp/bootstrap/store/applicants.hpp"
#include "bluefog_cpp/bootstrap/store/beside.hpp"
#include "bluefog_cpp/bootstrap/store/exit_hooks.hpp"
#include "bluefog_cpp/bootstrap/store/words.hpp"
#include "bluefog_cpp/error.hpp"

namespace bluefog {

namespace {

// A store that rank 0 keeps ends with its process: before, the others take what was handed out.
void await_receipts(const std::shared_ptr<StoreExchange>& exchange) noexcept {
  constexpr std::chrono::seconds kLongest(2);
  if (!exchange->has_handed_out()) {
    return;
  }
  const Deadline deadline = Deadline::after(kLongest);
  try {
    run_beside(
        [exchange, deadline](const std::atomic<bool>& is_over) {
          exchange->await_receipts(deadline, is_over);
        },
        {}, deadline, "bootstrap end");
  } catch (const std::exception&) {
    // Ranks that are gone take nothing any more.
  }
}

// The last one that leaves says that nobody takes in applicants any more.
void count_leaving(const StoreExchange::Place& place) {
  Store& store = *place.store;
  const Deadline soon = Deadline::after(std::chrono::seconds(1));
  if (store.add(place.prefix + "/left", 1, soon) == place.size) {
    store.set(ApplicationKeys(place.root).ended(), bytes_of("1"), soon);
  }
}

void leave(const std::shared_ptr<StoreExchange>& exchange) noexcept {
  await_receipts(exchange);
  if (!exchange->end_membership()) {
    return;
  }
  try {
    run_beside([exchange](const std::atomic<bool>&) { count_leaving(exchange->place()); }, {},
               Deadline::after(std::chrono::seconds(2)), "bootstrap end");
  } catch (const std::exception&) {
    // Who keeps the store is gone, and applicants find that too.
  }
}

// Time for a meeting beside the caller: whoever is late there is left out by those who are not.
Deadline for_latecomers(Deadline deadline) {
  constexpr std::chrono::seconds kMore(10);
  return deadline.is_set() ? Deadline::after(2 * (deadline.when() - Deadline::Clock::now()) + kMore)
                           : deadline;
}

}  // namespace

std::vector<StoreRecord> run_in_store(const std::shared_ptr<StoreExchange>& exchange,
                                      StoreRecord own, StoreExchange::Judge judge,
                                      Deadline deadline, const std::function<void()>& check) {
  const std::string what = exchange->name_of(own.call);
  const auto records = std::make_shared<std::vector<StoreRecord>>();
  try {
    run_beside(
        [exchange, records, judge = std::move(judge), own = std::move(own),
         deadline](const std::atomic<bool>& is_over) {
          *records = exchange->run(own, judge, deadline, is_over);
        },
        check, deadline, what);
  } catch (const TransportError& error) {
    throw TransportError(fmt::format("{}: {}", what, error.what()));
  }
  return std::move(*records);
}

StoreBootstrap::StoreBootstrap(std::shared_ptr<StoreExchange> exchange)
    : exchange_(std::move(exchange)),
      regrouping_(std::make_shared<Regrouping>(exchange_->place())),
      before_exit_(at_exit([held = exchange_] { leave(held); })) {}

StoreBootstrap::~StoreBootstrap() {
  if (::getpid() == owner_) {  // a fork has no connection of its own
    leave(exchange_);
  }
}

std::vector<Bootstrap::Blob> StoreBootstrap::allgather(std::span<const std::byte> blob,
                                                       Deadline deadline) {
  if (blob.size() > kMaxBlobBytes) {
    throw InvalidArgument(
        fmt::format("bootstrap allgather on rank {}: expected a blob of at most {} bytes, got {}",
                    rank(), kMaxBlobBytes, blob.size()));
  }
  std::vector<Blob> blobs;
  for (StoreRecord& record : meet(BootstrapCall::Allgather, {blob.begin(), blob.end()}, deadline)) {
    blobs.push_back(std::move(record.blob));
  }
  return blobs;
}

void StoreBootstrap::barrier(Deadline deadline) { meet(BootstrapCall::Barrier, {}, deadline); }

std::shared_ptr<Bootstrap> StoreBootstrap::duplicate(Deadline deadline) {
  meet(BootstrapCall::Duplicate, {}, deadline);
  return std::make_shared<StoreBootstrap>(std::make_shared<StoreExchange>(place_of_copy()));
}

StoreExchange::Place StoreBootstrap::place_of_copy() {
  StoreExchange::Place copy = place();
  copy.prefix += fmt::format("/d{}", duplicates_++);
  return copy;
}

Bootstrap::Regrouped StoreBootstrap::regroup(WhyGone why_gone, Deadline deadline, bool admits) {
  const std::string what =
      fmt::format("shrink on rank {}, over {}", rank(), place().store->description());
  const auto verdict = std::make_shared<Regrouping::Verdict>();
  const Regrouping::Coming coming{.why_gone = std::move(why_gone),
                                  .admits = admits,
                                  .deadline = deadline,
                                  .late = late().rank,
                                  .late_deadline = late().deadline};
  in_the_store(what, for_latecomers(deadline),
               [held = regrouping_, verdict, coming](const std::atomic<bool>& is_over) {
                 *verdict = held->meet(coming, is_over);
               });
  const auto own =
      static_cast<int>(std::ranges::find(verdict->ranks, rank()) - verdict->ranks.begin());
  Regrouped left = group_of(what, regrouping_, verdict, own, coming.why_gone);
  left.ranks = verdict->ranks;
  left.lost = verdict->lost;
  left.time = static_cast<double>(verdict->time_us) * 1e-6;
  left.joined = static_cast<int>(verdict->joined.size());
  if (left.joined > 0) {
    left.why_joined_gone = [held = regrouping_, verdict] {
      return held->why_joined_gone(*verdict);
    };
  }
  return left;
}

bool StoreBootstrap::has_applicants() {
  if (!place().may_grow || has_lost_store_) {
    return false;
  }
  try {
    return regrouping_->has_applicants();
  } catch (const Error& error) {  // no reason for those that train to end
    has_lost_store_ = true;
    place().log.warning(
        fmt::format("nobody who waits to join is looked for any more: {}", error.what()));
    return false;
  }
}

std::shared_ptr<void> StoreBootstrap::before_shutdown(std::function<void()> leave) {
  return at_exit(std::move(leave));
}

Bootstrap::Regrouped StoreBootstrap::group_of(
    const std::string& what, const std::shared_ptr<Regrouping>& meeting,
    const std::shared_ptr<const Regrouping::Verdict>& verdict, int own, const WhyGone& why_gone) {
  StoreExchange::Place place = exchange_->place();
  place.prefix = fmt::format("{}/g{}", place.root, verdict->group);
  place.rank = own;
  place.size = verdict->size();
  place.ended_key.clear();
  const auto next = std::make_shared<StoreExchange>(std::move(place));
  const auto settle = [this, meeting, verdict, why_gone, what, next, left = exchange_](
                          bool is_ready, Deadline until) {
    const auto have_settled = std::make_shared<bool>(false);
    const Regrouping::Coming coming{.why_gone = why_gone, .deadline = until};
    in_the_store(what, for_latecomers(until), [=](const std::atomic<bool>& is_over) {
      *have_settled = meeting->settle(*verdict, is_ready, coming, is_over);
      if (*have_settled) {  // a group that has not come about is not left by anybody
        (void)left->end_membership();
        next->begin_membership();
      }
    });
    return *have_settled;
  };
  return {.bootstrap = std::make_shared<StoreBootstrap>(next),
          .ranks = {},
          .lost = {},
          .is_given_up = [meeting] { return meeting->is_given_up(); },
          .settle = settle};
}

void StoreBootstrap::in_the_store(const std::string& what, Deadline longest,
                                  std::function<void(const std::atomic<bool>&)> body) const {
  try {
    run_beside(std::move(body), look(), longest, what);
  } catch (const TransportError& error) {
    throw TransportError(fmt::format("{}: {}", what, error.what()));
  }
}

std::vector<StoreRecord> StoreBootstrap::meet(BootstrapCall call, Blob blob, Deadline deadline) {
  if (!broken_.empty()) {
    throw StateError(
        fmt::format("{}: an earlier call failed: {}", exchange_->name_of(call), broken_));
  }
  std::vector<StoreRecord> records;
  try {
    records = run_in_store(exchange_, {call, std::move(blob)}, {}, deadline, look());
  } catch (const Error& error) {
    broken_ = error.what();
    throw;
  }
  for (int other = 0; other < size(); ++other) {
    if (const BootstrapCall theirs = records[static_cast<std::size_t>(other)].call;
        theirs != records[0].call) {
      throw MismatchError(fmt::format("bootstrap on rank {}: rank 0 called {}, rank {} called {}",
                                      rank(), to_string(records[0].call), other,
                                      to_string(theirs)));
    }
  }
  return records;
}

}  // namespace bluefog
