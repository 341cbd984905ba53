#include "bluefog_cpp/store_bootstrap.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "bluefog_cpp/base/exit_note.hpp"
#include "bluefog_cpp/base/files/take_line.hpp"
#include "bluefog_cpp/base/version.hpp"
#include "bluefog_cpp/bootstrap/store/applicant.hpp"
#include "bluefog_cpp/bootstrap/store/beside.hpp"
#include "bluefog_cpp/bootstrap/store/exit_hooks.hpp"
#include "bluefog_cpp/bootstrap/store/regrouping.hpp"
#include "bluefog_cpp/bootstrap/store/store_exchange.hpp"
#include "bluefog_cpp/bootstrap/store/words.hpp"
#include "bluefog_cpp/error.hpp"

namespace bluefog {

namespace {

using Records = std::vector<StoreRecord>;

std::string_view text_of(const Bootstrap::Blob& blob) {
  return {reinterpret_cast<const char*>(blob.data()), blob.size()};
}

Bootstrap::Blob blob_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

// Runs a collective beside the caller. It holds all that it touches: it may be stuck for ever.
Records run(const std::shared_ptr<StoreExchange>& exchange, StoreRecord own,
            StoreExchange::Judge judge, Deadline deadline, const std::function<void()>& check) {
  const std::string what = exchange->name_of(own.call);
  const auto records = std::make_shared<Records>();
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
  if (!exchange->note_leaving()) {
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

class StoreBootstrap : public Bootstrap {
 public:
  explicit StoreBootstrap(std::shared_ptr<StoreExchange> exchange)
      : exchange_(std::move(exchange)),
        regrouping_(std::make_shared<Regrouping>(exchange_->place())),
        before_exit_(at_exit([held = exchange_] { leave(held); })) {}
  StoreBootstrap(const StoreBootstrap&) = delete;
  StoreBootstrap& operator=(const StoreBootstrap&) = delete;
  ~StoreBootstrap() override {
    if (::getpid() == owner_) {  // a fork has no connection of its own
      leave(exchange_);
    }
  }

  [[nodiscard]] int rank() const noexcept override { return exchange_->place().rank; }
  [[nodiscard]] int size() const noexcept override { return exchange_->place().size; }
  [[nodiscard]] std::string_view name() const noexcept override { return "store"; }
  [[nodiscard]] bool in_process() const noexcept override { return false; }

  [[nodiscard]] std::vector<Blob> allgather(std::span<const std::byte> blob,
                                            Deadline deadline) override {
    if (blob.size() > kMaxBlobBytes) {
      throw InvalidArgument(
          fmt::format("bootstrap allgather on rank {}: expected a blob of at most {} bytes, got {}",
                      rank(), kMaxBlobBytes, blob.size()));
    }
    Records records = meet(BootstrapCall::Allgather, {blob.begin(), blob.end()}, deadline);
    std::vector<Blob> blobs;
    for (StoreRecord& record : records) {
      blobs.push_back(std::move(record.blob));
    }
    return blobs;
  }

  void barrier(Deadline deadline) override { meet(BootstrapCall::Barrier, {}, deadline); }

  [[nodiscard]] std::shared_ptr<Bootstrap> duplicate(Deadline deadline) override {
    meet(BootstrapCall::Duplicate, {}, deadline);
    StoreExchange::Place place = exchange_->place();
    place.prefix += fmt::format("/d{}", duplicates_++);
    place.counts_leaving = false;
    return std::make_shared<StoreBootstrap>(std::make_shared<StoreExchange>(std::move(place)));
  }

  [[nodiscard]] std::string_view regroup_obstacle() const noexcept override { return {}; }

  [[nodiscard]] Regrouped regroup(WhyGone why_gone, Deadline deadline, bool admits) override {
    const std::string what =
        fmt::format("shrink on rank {}, over {}", rank(), exchange_->place().store->description());
    const auto verdict = std::make_shared<Regrouping::Verdict>();
    const Regrouping::Coming coming{
        .why_gone = std::move(why_gone), .admits = admits, .deadline = deadline};
    in_the_store(what, for_latecomers(deadline),
                 [held = regrouping_, verdict, coming](const std::atomic<bool>& is_over) {
                   *verdict = held->meet(coming, is_over);
                 });
    const auto own =
        static_cast<int>(std::ranges::find(verdict->ranks, rank()) - verdict->ranks.begin());
    Regrouped left = group_of(what, regrouping_, verdict, own, coming.why_gone);
    left.ranks = verdict->ranks;
    left.lost = verdict->lost;
    left.joined = static_cast<int>(verdict->joined.size());
    if (left.joined > 0) {
      left.why_joined_gone = [held = regrouping_, verdict] {
        return held->why_joined_gone(*verdict);
      };
    }
    return left;
  }

  [[nodiscard]] bool has_applicants() override {
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

  [[nodiscard]] std::shared_ptr<void> before_shutdown(std::function<void()> leave) override {
    return at_exit(std::move(leave));
  }

 protected:
  [[nodiscard]] const StoreExchange::Place& place() const { return exchange_->place(); }

  /// The part of a group that its meeting leaves open. @param own this rank's number in it.
  [[nodiscard]] Regrouped group_of(const std::string& what,
                                   const std::shared_ptr<Regrouping>& meeting,
                                   const std::shared_ptr<const Regrouping::Verdict>& verdict,
                                   int own, const WhyGone& why_gone) {
    StoreExchange::Place place = exchange_->place();
    place.prefix = fmt::format("{}/g{}", place.root, verdict->group);
    place.rank = own;
    place.size = verdict->size();
    place.counts_leaving = place.may_grow;
    const auto settle = [this, meeting, verdict, why_gone, what](bool is_ready, Deadline until) {
      const auto have_settled = std::make_shared<bool>(false);
      const Regrouping::Coming coming{.why_gone = why_gone, .deadline = until};
      in_the_store(what, for_latecomers(until), [=](const std::atomic<bool>& is_over) {
        *have_settled = meeting->settle(*verdict, is_ready, coming, is_over);
      });
      if (*have_settled) {
        exchange_->move_on();
      }
      return *have_settled;
    };
    return {.bootstrap =
                std::make_shared<StoreBootstrap>(std::make_shared<StoreExchange>(std::move(place))),
            .ranks = {},
            .lost = {},
            .is_given_up = [meeting] { return meeting->is_given_up(); },
            .settle = settle};
  }

  void in_the_store(const std::string& what, Deadline longest,
                    std::function<void(const std::atomic<bool>&)> body) const {
    try {
      run_beside(std::move(body), look(), longest, what);
    } catch (const TransportError& error) {
      throw TransportError(fmt::format("{}: {}", what, error.what()));
    }
  }

 private:
  Records meet(BootstrapCall call, Blob blob, Deadline deadline) {
    if (!broken_.empty()) {
      throw StateError(
          fmt::format("{}: an earlier call failed: {}", exchange_->name_of(call), broken_));
    }
    Records records;
    try {
      records = run(exchange_, {call, std::move(blob)}, {}, deadline, look());
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

  std::shared_ptr<StoreExchange> exchange_;
  std::shared_ptr<Regrouping> regrouping_;
  std::shared_ptr<void> before_exit_;
  pid_t owner_ = ::getpid();
  int duplicates_ = 0;
  bool has_lost_store_ = false;
  std::string broken_;
};

/// This process, which is alone until the ranks of a running launch take it in.
class ApplicantBootstrap final : public StoreBootstrap {
 public:
  ApplicantBootstrap(std::shared_ptr<StoreExchange> exchange, std::shared_ptr<Applicant> applicant)
      : StoreBootstrap(std::move(exchange)), applicant_(std::move(applicant)) {}

  [[nodiscard]] bool is_applicant() const noexcept override { return true; }
  [[nodiscard]] bool has_applicants() override { return false; }

  [[nodiscard]] std::shared_ptr<Bootstrap> duplicate(Deadline /*deadline*/) override {
    StoreExchange::Place copy = place();
    copy.prefix += fmt::format("/d{}", duplicates_++);
    return std::make_shared<ApplicantBootstrap>(std::make_shared<StoreExchange>(std::move(copy)),
                                                applicant_);
  }

  [[nodiscard]] Regrouped regroup(WhyGone /*why_gone*/, Deadline /*deadline*/,
                                  bool /*admits*/) override {
    const std::string what =
        fmt::format("a process that joins, over {}", place().store->description());
    const auto admission = std::make_shared<Applicant::Admission>();
    in_the_store(what, Deadline::never(),
                 [held = applicant_, admission](const std::atomic<bool>& is_over) {
                   *admission = held->wait(is_over);
                 });
    const auto verdict = std::make_shared<Regrouping::Verdict>(admission->verdict);
    Regrouped left = group_of(what, admission->meeting, verdict, admission->rank,
                              [](int) { return std::nullopt; });
    left.joined = 1;
    left.settle = [held = applicant_, settle = left.settle](bool is_ready, Deadline until) {
      const bool have_settled = settle(is_ready, until);
      if (have_settled) {
        held->end();
        report_joining();
      }
      return have_settled;
    };
    return left;
  }

 private:
  std::shared_ptr<Applicant> applicant_;
  int duplicates_ = 0;
};

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

/// Its value is the root of the ranks that are running.
std::string running_key(const StorePlace& place) { return place.prefix + "/running"; }

std::shared_ptr<Bootstrap> make_applicant(std::shared_ptr<Store> store, const StorePlace& place,
                                          const Settings& settings, Deadline deadline,
                                          const std::function<void()>& interrupt_check) {
  const std::string what = fmt::format("a process that joins, over {}", store->description());
  const auto root = std::make_shared<std::optional<Store::Bytes>>();
  run_beside(
      [store, root, deadline, key = running_key(place)](const std::atomic<bool>& is_over) {
        while (!*root && !is_over && !deadline.expired()) {
          *root = store->get(key, Deadline::after(std::chrono::milliseconds(50)));
        }
      },
      interrupt_check, deadline, what);
  if (!*root) {
    throw TimeoutError(fmt::format(
        "{}: expected ranks that are running with BLUEFOG_ON_FAILURE=shrink, found none within {}",
        what, settings.timeout_name));
  }
  StoreExchange::Place own{
      .store = std::move(store),
      .prefix = {},
      .root = words_of(**root),
      .may_grow = true,
      .stall_warning = settings.stall_warning,
      .timeout_name = settings.timeout_name,
      .log = Logger(
          {.level = settings.log_level, .hide_time = settings.log_hide_time, .rank = place.rank})};
  const auto applicant = std::make_shared<Applicant>(own);
  own.prefix = fmt::format("{}/w{}", own.root, applicant->id());
  return std::make_shared<ApplicantBootstrap>(std::make_shared<StoreExchange>(std::move(own)),
                                              applicant);
}

}  // namespace

std::shared_ptr<Bootstrap> make_store_bootstrap(std::shared_ptr<Store> store,
                                                const StorePlace& place, const Settings& settings,
                                                Deadline deadline,
                                                std::function<void()> interrupt_check) {
  check(place, store.get());
  if (settings.joins) {
    return make_applicant(std::move(store), place, settings, deadline, interrupt_check);
  }
  const std::int64_t meeting = count_meetings(store, place, 0, deadline, interrupt_check);
  const auto exchange = std::make_shared<StoreExchange>(StoreExchange::Place{
      .store = std::move(store),
      .rank = place.rank,
      .size = place.size,
      .prefix = fmt::format("{}/m{}", place.prefix, meeting),
      .root = fmt::format("{}/m{}", place.prefix, meeting),
      .may_grow = settings.on_failure == OnFailure::Shrink,
      .counts_leaving = settings.on_failure == OnFailure::Shrink,
      .stall_warning = settings.stall_warning,
      .timeout_name = settings.timeout_name,
      .log = Logger(
          {.level = settings.log_level, .hide_time = settings.log_hide_time, .rank = place.rank})});
  const Greeting own{place.version.empty() ? own_version() : place.version,
                     std::to_string(place.size), process_name()};
  const auto judge = [own](int rank, const StoreRecord& record) {
    return compare(own, rank, greeting_from(text_of(record.blob)));
  };
  const Records records = run(exchange, {BootstrapCall::Start, blob_of(to_text(own))}, judge,
                              deadline, interrupt_check);
  const Greeting found = greeting_from(text_of(records[static_cast<std::size_t>(place.rank)].blob));
  if (found.process != own.process) {
    throw StateError(fmt::format(
        "{}: another process has come as rank {} (process {} there, process {} here): expected a "
        "rank of its own for each process, and another prefix for each launch",
        exchange->name_of(BootstrapCall::Start), place.rank,
        found.process.substr(0, found.process.find('-')), ::getpid()));
  }
  if (exchange->place().may_grow && place.rank == 0) {
    exchange->place().store->set(running_key(place), bytes_of(exchange->place().root), deadline);
  }
  count_meetings(exchange->place().store, place, 1, deadline, interrupt_check);
  return std::make_shared<StoreBootstrap>(exchange);
}

}  // namespace bluefog
