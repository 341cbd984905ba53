#pragma once

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bluefog_cpp/base/fork_guard.hpp"
#include "bluefog_cpp/base/pooled_allocator.hpp"
#include "bluefog_cpp/engine/call_driver.hpp"
#include "bluefog_cpp/engine/call_ledger.hpp"
#include "bluefog_cpp/engine/call_queue.hpp"
#include "bluefog_cpp/engine/context_family.hpp"
#include "bluefog_cpp/engine/engine_parts.hpp"
#include "bluefog_cpp/engine/operation.hpp"
#include "bluefog_cpp/engine/peers.hpp"
#include "bluefog_cpp/engine/progress/progress_loop.hpp"
#include "bluefog_cpp/engine/progress/progress_thread.hpp"
#include "bluefog_cpp/engine/progress/sleepers.hpp"
#include "bluefog_cpp/engine/progress_hook.hpp"
#include "bluefog_cpp/engine/records/call_records.hpp"
#include "bluefog_cpp/engine/records/hopeless_calls.hpp"
#include "bluefog_cpp/engine/records/stall_report.hpp"
#include "bluefog_cpp/engine/waiter.hpp"
#include "bluefog_cpp/log.hpp"
#include "bluefog_cpp/work.hpp"

namespace bluefog {

/// Orders the calls of one context and drives their exchanges.
///
/// Calls run in the order of their submission. Whoever holds the mutex drives the transports: a caller
/// that waits, or the progress thread for calls that nobody waits for; neither sleeps meanwhile.
///
/// Thread-safe. Held by `shared_ptr`. In a fork of the process every call is a StateError and
/// nothing is sent; it must not be destroyed there.
class Engine : public std::enable_shared_from_this<Engine> {
 public:
  explicit Engine(EngineParts parts);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// An operation for `submit`, in memory that is used again.
  template <typename Kind, typename... Parts>
  [[nodiscard]] std::shared_ptr<Kind> make_operation(Parts&&... parts) {
    return std::allocate_shared<Kind>(PooledAllocator<Kind>(operation_pool_),
                                      std::forward<Parts>(parts)...);
  }

  /// Starts a call; what can be done at once is done by the calling thread.
  /// @throws StateError after `close`.
  Work submit(std::shared_ptr<Operation> operation);

  /// Starts a call and waits for it, without a hand-over to the progress thread. The operation may
  /// live on the stack.
  void run(Operation& operation);

  /// Starts a call and waits for it with a deadline of its own; zero: never.
  void run(Operation& operation, std::chrono::milliseconds timeout);

  /// Blocks until the call is complete and rethrows its error.
  void wait(Operation& operation);
  /// The same with a deadline of its own; zero: never.
  void wait(Operation& operation, std::chrono::milliseconds timeout);

  /// How a thread beside those of the caller waits.
  /// @param timeout its own deadline; zero: that of the settings.
  [[nodiscard]] Waiter waiter_at_rest(std::chrono::milliseconds timeout) const {
    return Waiter::background(timeout.count() > 0 ? policy_of(timeout) : policy_);
  }
  /// Waits at rest, at most about until `end`. Its error stays for `wait`.
  /// @param waiter of this call alone, from its first look on.
  /// @return whether the call is done.
  bool attend(Operation& operation, Waiter& waiter, Waiter::Clock::time_point end);

  /// Runs `task` while no call is driven. The ledger may be read by it alone.
  void run_exclusively(const std::function<void()>& task) {
    const Lock lock(mutex_);
    task();
  }
  [[nodiscard]] const CallLedger& ledger() const noexcept { return ledger_; }

  [[nodiscard]] static bool is_done(const Operation& operation) noexcept {
    return CallState::of(operation).is_done();
  }

  /// Counts a call that was refused before anything moved, and reports it to the peers.
  /// @param partner as `Operation::partner`.
  void refuse(std::string_view reason, int partner = -1);

  /// A call that consists of several. While one lasts, calls leave late rejections to the next
  /// whole call: all ranks then end it alike, whichever of them learns of an earlier mismatch
  /// meanwhile.
  class LargerCall {
   public:
    explicit LargerCall(Engine& engine) : engine_(engine) { engine_.count_larger_calls(1); }
    LargerCall(const LargerCall&) = delete;
    LargerCall& operator=(const LargerCall&) = delete;
    ~LargerCall() { engine_.count_larger_calls(-1); }

   private:
    Engine& engine_;
  };

  /// Says that this thread waits for what it is about to start: nobody is woken to drive it.
  class Presence {
   public:
    explicit Presence(Engine& engine) : engine_(engine) { engine_.count_present(1); }
    Presence(const Presence&) = delete;
    Presence& operator=(const Presence&) = delete;
    ~Presence() { engine_.count_present(-1); }

   private:
    Engine& engine_;
  };

  /// From now on `progress_hook` is driven beside the transports, until the engine is closed.
  void attach(std::shared_ptr<ProgressHook> progress_hook);

  /// `check` is called about every 50 ms by the user's threads while they wait, without the mutex;
  /// an exception from it fails the call and leaves the wait.
  void set_interrupt_check(std::function<void()> check);

  /// Runs the interrupt check for waits outside the engine. @throws what it throws.
  void check_interrupt();

  /// Writes the flight record, where one is kept: for calls outside the engine.
  void record_stall(std::string_view reason);

  /// Why `peer`, another rank, will not come any more, or nothing while it lives.
  [[nodiscard]] std::optional<std::string> cause_of_death(int peer);

  /// Whether the process of another rank is known to have ended without leaving the group.
  [[nodiscard]] bool has_dead_peer();

  /// Looks, for callers that make no calls, whether all calls have been revoked.
  [[nodiscard]] bool is_revoked();
  /// @param where for the message. @throws RankLostError where they have.
  void check_revoked(std::string_view where);
  /// Revokes all calls, here and at the peers. Does nothing after `close`.
  void revoke(std::string_view why);

  [[nodiscard]] StepNews& step_news() noexcept { return step_news_; }
  /// The last call of all ranks that `peer`, another rank, is known to have begun, if this rank has
  /// not; else empty, as while another thread drives this engine.
  [[nodiscard]] std::string call_ahead(int peer);

  /// `HopelessCalls::wait_for_this`; nothing while another thread drives this engine.
  [[nodiscard]] std::optional<Transport::SeenCall> wait_for_this(int peer);
  /// Reports to `peer`, which waits for this rank in `call`, why this one cannot come to it.
  void report_deadlock(int peer, std::uint64_t call, std::string_view why);

  /// Whether a wait has timed out, here or at another rank: one of them may not come any more.
  [[nodiscard]] bool has_abandoned();
  /// Notes that a wait outside the engine has timed out.
  void note_abandonment();

  [[nodiscard]] bool is_closed();

  /// Whether this process is a fork of the rank's.
  [[nodiscard]] bool is_forked() const noexcept { return home_.is_forked(); }

  /// How far this rank has come in its calls.
  struct CallCounts {
    std::uint64_t next_call = 1;
    CallLedger::Changes changes{};
    std::array<std::uint64_t, CallLedger::kKeptCalls> failed_without_change{};
    std::vector<std::uint64_t> pair_calls{};
  };
  /// Ends the calls in flight. @return how far this rank has come. @throws StateError after
  /// `close`, and in a fork.
  [[nodiscard]] CallCounts begin_resync();
  /// Goes on with the calls on which all ranks have agreed.
  void end_resync(std::uint64_t next_call, std::vector<std::uint64_t> pair_calls);

  /// The transport that leads to `peer`, another rank. @throws StateError after `close`.
  [[nodiscard]] const Transport& transport_to(int peer);

  /// Leaves the group: calls in flight fail, later ones are refused, peers are notified.
  /// Idempotent; may be called by an interrupt check. Not in a fork.
  void close() noexcept;

 private:
  using Lock = std::unique_lock<std::mutex>;

  void enqueue(Operation& operation, std::shared_ptr<Operation> owner);
  [[nodiscard]] WaitPolicy policy_of(std::chrono::milliseconds timeout) const;
  void run_by(const WaitPolicy& policy, Operation& operation);
  void drive_to_end(Lock& lock, Operation& operation, const WaitPolicy& policy);
  void note_caller() noexcept {
    if (family_) {
      family_->note_caller();
    }
  }
  void count_larger_calls(int change);
  void count_present(int change);

  void check_home(const Operation& operation) const;
  [[noreturn]] void throw_forked(std::string_view call) const;

  WaitPolicy policy_;
  Logger log_;
  std::shared_ptr<ContextFamily> family_;
  ForkGuard home_;
  std::shared_ptr<std::pmr::memory_resource> operation_pool_;
  std::mutex mutex_;
  Peers peers_;
  CallQueue queue_;
  CallLedger ledger_;
  Revocation revocation_;
  StepNews step_news_{peers_, revocation_};
  CallRecords records_;
  StallReport stalls_;
  HopelessCalls hopeless_;
  Sleepers sleepers_;
  ProgressThread background_;
  CallDriver driver_;
  ProgressLoop loop_;
  bool closed_ = false;
};

}  // namespace bluefog
