#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "bluefog_cpp/base/fork_guard.hpp"
#include "bluefog_cpp/base/pooled_allocator.hpp"
#include "bluefog_cpp/base/trace.hpp"
#include "bluefog_cpp/deadline.hpp"
#include "bluefog_cpp/engine/attendant.hpp"
#include "bluefog_cpp/engine/exchange.hpp"
#include "bluefog_cpp/engine/flight_recorder.hpp"
#include "bluefog_cpp/engine/operation.hpp"
#include "bluefog_cpp/engine/peer_reports.hpp"
#include "bluefog_cpp/engine/relatives.hpp"
#include "bluefog_cpp/engine/retractions.hpp"
#include "bluefog_cpp/engine/routes.hpp"
#include "bluefog_cpp/engine/waiter.hpp"
#include "bluefog_cpp/log.hpp"
#include "bluefog_cpp/transport/doorbell.hpp"
#include "bluefog_cpp/work.hpp"

namespace bluefog {

/// What an engine stands on.
struct EngineParts {
  int rank = 0;
  int size = 1;
  std::vector<std::unique_ptr<Transport>> transports{};
  Routes routes{};
  /// Rung by peers; null when no transport shares memory.
  Doorbell* doorbell = nullptr;
  WaitPolicy policy{};
  Logger log{};
  /// Null when no timeline is written.
  std::shared_ptr<Timeline> timeline{};
  /// Null when no flight record is kept.
  std::shared_ptr<FlightRecorder> recorder{};
  /// This context's number there.
  int recorded_context = 0;
  /// With the engines of related contexts; null where there can be none.
  std::shared_ptr<Relatives> relatives{};
};

/// Orders the calls of one context and drives their exchanges.
///
/// Calls run in the order of their submission. Whoever holds the mutex drives
/// the transports: a caller that waits, or the progress thread for calls that
/// nobody waits for; neither sleeps while it holds the mutex.
///
/// Every call has an index that counts the calls of this context on this rank,
/// refused ones included, so that ranks stay in step when one of them refuses.
/// Calls of two ranks are counted apart, for each pair.
///
/// Thread-safe. Held by `shared_ptr`. In a fork of the process every call is a StateError and nothing
/// is sent; it must not be destroyed there.
class Engine : public std::enable_shared_from_this<Engine>, private PeerReports {
 public:
  explicit Engine(EngineParts parts);
  ~Engine() override;
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

  /// As `submit` and `Work::wait` in one, without a hand-over to the progress thread. The operation
  /// may live on the stack.
  void run(Operation& operation);

  /// Blocks until the call is complete and rethrows its error.
  void wait(Operation& operation);

  /// Runs `task` while no call is driven.
  void run_exclusively(const std::function<void()>& task) {
    const Lock lock(mutex_);
    task();
  }

  [[nodiscard]] static bool is_done(const Operation& operation) noexcept {
    return operation.call_.phase.load(std::memory_order_acquire) >= CallState::Phase::Complete;
  }

  /// Counts a call that was refused before anything moved, and tells the peers why.
  /// @param partner as `Operation::partner`.
  void refuse(std::string_view reason, int partner = -1);

  /// A call that consists of several. While one lasts, calls leave late rejections to the next whole
  /// call: all ranks then end it alike, whichever of them hears of an earlier mismatch meanwhile.
  class LargerCall {
   public:
    explicit LargerCall(Engine& engine) : engine_(engine) { engine_.count_larger_calls(1); }
    LargerCall(const LargerCall&) = delete;
    LargerCall& operator=(const LargerCall&) = delete;
    ~LargerCall() { engine_.count_larger_calls(-1); }

   private:
    Engine& engine_;
  };

  /// From now on `attendant` is driven beside the transports, until the engine is closed.
  void attach(std::shared_ptr<Attendant> attendant);

  /// `check` is called about every 50 ms by the user's threads while they wait, without the mutex;
  /// an exception from it fails the call and leaves the wait.
  void set_interrupt_check(std::function<void()> check);

  /// Runs the interrupt check, if there is one, for waits outside the engine. @throws what it throws.
  void check_interrupt();

  /// Writes the flight record, where one is kept: for calls outside the engine.
  void record_stall(std::string_view reason);

  /// Why `peer`, another rank, will not come any more, or nothing while it lives.
  [[nodiscard]] std::optional<std::string> obituary(int peer);

  /// Whether the process of another rank is known to have ended without leaving the group.
  [[nodiscard]] bool has_dead_peer();

  /// The last call of all ranks that `peer`, another rank, is known to have begun, if this rank has
  /// not; else empty, as while another thread drives this engine.
  [[nodiscard]] std::string call_ahead(int peer);

  /// Whether a wait has timed out, here or at another rank: one of them may not come any more.
  [[nodiscard]] bool has_given_up();

  [[nodiscard]] bool is_closed();

  /// Whether this process is a fork of the rank's.
  [[nodiscard]] bool is_forked() const noexcept { return home_.is_forked(); }

  /// The transport that leads to `peer`, another rank. @throws StateError after `close`.
  [[nodiscard]] const Transport& transport_to(int peer);

  /// Leaves the group: calls in flight fail, later ones are refused, peers are told. Idempotent; may
  /// be called by an interrupt check. Not in a fork.
  void close() noexcept;

 private:
  using Lock = std::unique_lock<std::mutex>;

  struct Refusal {
    std::uint64_t call = 0;
    ControlMessage::Kind kind = ControlMessage::Kind::Refusal;
    std::string reason;
  };

  [[nodiscard]] const Refusal* find_refusal(int rank, std::uint64_t call) const;
  [[nodiscard]] const std::string* refusal(int rank, std::uint64_t call) const override;
  [[nodiscard]] bool knows_of_giving_up() const noexcept override { return knows_of_giving_up_; }
  [[nodiscard]] const std::string* giving_up(int rank, std::uint64_t call) const override;
  [[nodiscard]] bool is_under_way(int rank, std::uint64_t call) const override;
  void report_unexpected(int rank, std::uint64_t call, const std::string& text) override;

  /// A call, told from calls of other pairs.
  struct CallKey {
    std::uint64_t call = 0;
    int partner = -1;

    friend bool operator==(const CallKey&, const CallKey&) = default;
  };
  /// The key of what `rank` calls `call`.
  [[nodiscard]] static CallKey key_of(int rank, std::uint64_t call) noexcept {
    return {.call = call, .partner = is_pair_call(call) ? rank : -1};
  }
  [[nodiscard]] static CallKey key_of(const Operation& operation) noexcept {
    return {.call = operation.call_.index, .partner = operation.partner()};
  }

  struct Active {
    Operation* operation = nullptr;
    /// Null for calls that `run` keeps.
    std::shared_ptr<Operation> owner{};

    /// Nobody holds its `Work` any more.
    [[nodiscard]] bool is_dropped() const noexcept { return owner && owner.use_count() == 1; }
  };

  void enqueue(Operation& operation, std::shared_ptr<Operation> owner);
  void drive(Lock& lock, Operation& operation);
  /// Sleeps until something may have moved. @return false when something has, without a sleep.
  bool sleep(Lock& lock, Waiter& waiter, const Operation* operation);
  void pause(Lock& lock, Waiter& waiter, Operation* operation);
  [[nodiscard]] bool needs_polling() const noexcept;
  /// Changes whenever `operation` has come nearer to its end.
  [[nodiscard]] std::uint64_t progress_of(const Operation& operation) const noexcept;

  [[nodiscard]] std::uint64_t take_index(int partner);
  bool step_all();
  /// Somebody waits for a call, or for a later one whose messages come after its own.
  [[nodiscard]] bool is_waited_for(const Active& active) const;
  [[nodiscard]] std::uint64_t first_under_way() const noexcept;
  /// All earlier calls with the partner of `operation` have sent everything.
  [[nodiscard]] bool may_publish_to_partner(const Operation& operation) const;
  bool step(Operation& operation, const StepRights& rights);
  bool start_next(Operation& operation);
  void complete(Operation& operation);
  /// Ranks that have ended a call with an error which is complete here.
  void tell_attendant_of(const Operation& operation);
  void end_span(Operation& operation, FlightRecorder::State state);
  /// Writes what all calls under way wait for.
  void write_flight_record(std::string_view reason) const;
  /// @param word what peers are told.
  void fail(Operation& operation, std::exception_ptr error,
            ControlMessage::Kind word = ControlMessage::Kind::Refusal);
  void remove_finished();

  /// The next call that completes throws this, once per `call`.
  void report_late(CallKey call, std::string text);
  void count_larger_calls(int change);
  void tell_peers(CallKey call, std::string_view reason, ControlMessage::Kind word);
  bool hear_control();
  void hear(int source, ControlMessage message);
  [[nodiscard]] Operation* find_active(CallKey call) const noexcept;
  [[nodiscard]] bool has_failed(CallKey call) const noexcept;
  void note_failed(CallKey call);
  /// Takes messages of calls that failed here, whose writers have no room for others before, although
  /// no call here reads from them.
  /// @return whether some are off their streams.
  bool drop_messages_of_failed_calls();
  /// This rank has made that call, and it has ended.
  [[nodiscard]] bool is_over(CallKey call) const noexcept;

  void fail_calls_on_dead_peers();
  void tell_attendant_of_dead_peers();
  /// Words about what `rank` has begun in related contexts; empty if nothing is known of.
  [[nodiscard]] std::string ahead_elsewhere(int rank) const;
  [[nodiscard]] std::string awaited_text(const Operation& operation) const;
  void warn_of_stall(const Operation& operation, std::chrono::milliseconds waited) const;
  [[nodiscard]] std::exception_ptr timeout_error(const Operation& operation) const;

  [[nodiscard]] bool has_background_work() const noexcept;
  void start_progress_thread();
  void run_progress_thread();

  void check_home(const Operation& operation) const;
  [[noreturn]] void throw_forked(std::string_view call) const;

  EngineParts parts_;
  ForkGuard home_;
  Doorbell own_doorbell_{};
  Doorbell* doorbell_;

  std::shared_ptr<std::pmr::memory_resource> operation_pool_;

  std::mutex mutex_;
  std::condition_variable work_to_drive_;
  /// Null while there is none.
  std::shared_ptr<Attendant> attendant_;
  std::vector<Active> active_;
  Retractions retractions_;
  std::uint64_t next_call_ = 1;
  /// By partner: calls made with it alone.
  std::vector<std::uint64_t> pair_calls_;
  int drivers_ = 0;
  int sleepers_ = 0;
  bool closed_ = false;
  bool given_up_ = false;
  /// The engine whose wait runs its interrupt check in this thread.
  static thread_local const Engine* in_interrupt_check_;
  std::function<void()> interrupt_check_;
  /// By peer: calls that it refused or that failed there, and that are not over here.
  std::vector<std::vector<Refusal>> refusals_;
  /// Some of them have given up a call.
  bool knows_of_giving_up_ = false;
  std::string pending_rejection_;
  int larger_calls_ = 0;
  CallKey last_late_call_{};
  /// The last ones: messages of theirs may still come.
  std::vector<CallKey> failed_calls_;
  std::size_t failed_count_ = 0;
  std::thread progress_thread_;
};

}  // namespace bluefog
