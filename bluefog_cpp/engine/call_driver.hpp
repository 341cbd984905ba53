#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <string_view>

#include "bluefog_cpp/base/where_memory_allows.hpp"
#include "bluefog_cpp/engine/call_key.hpp"
#include "bluefog_cpp/engine/call_ledger.hpp"
#include "bluefog_cpp/engine/call_queue.hpp"
#include "bluefog_cpp/engine/exchange/retractions.hpp"
#include "bluefog_cpp/engine/exchange_spec.hpp"
#include "bluefog_cpp/engine/operation.hpp"
#include "bluefog_cpp/engine/peers.hpp"
#include "bluefog_cpp/engine/progress/progress_thread.hpp"
#include "bluefog_cpp/engine/progress/sleepers.hpp"
#include "bluefog_cpp/engine/progress_hook.hpp"
#include "bluefog_cpp/engine/records/call_records.hpp"
#include "bluefog_cpp/engine/records/hopeless_calls.hpp"
#include "bluefog_cpp/engine/records/inquiries.hpp"
#include "bluefog_cpp/engine/records/revocation.hpp"
#include "bluefog_cpp/engine/records/stall_report.hpp"
#include "bluefog_cpp/engine/records/step_news.hpp"
#include "bluefog_cpp/error.hpp"
#include "bluefog_cpp/transport/message.hpp"

namespace bluefog {

/// Moves the calls of one context on as far as messages allow, ends them, and reports those that
/// fail to the peers.
///
/// Used under the engine's mutex.
class CallDriver {
 public:
  /// The objects that it works with, which outlive it.
  struct Parts {
    Peers& peers;
    CallQueue& queue;
    CallLedger& ledger;
    Revocation& revocation;
    StepNews& step_news;
    const CallRecords& records;
    const StallReport& stalls;
    HopelessCalls& hopeless;
    /// Woken when a call ends.
    Sleepers& sleepers;
    /// Woken when a call fails: its messages may come while this rank makes no call.
    ProgressThread& background;
  };
  explicit CallDriver(const Parts& parts)
      : parts_(parts), inquiries_(parts.peers, parts.queue, parts.ledger) {}
  CallDriver(const CallDriver&) = delete;
  CallDriver& operator=(const CallDriver&) = delete;

  [[nodiscard]] const Parts& parts() const noexcept { return parts_; }

  /// Takes the next call. @param owner null if the operation lives on its caller's stack.
  void enqueue(Operation& operation, std::shared_ptr<Operation> owner);

  /// Counts a call that was refused before anything moved, and reports it to the peers.
  void refuse(std::string_view reason, int partner) noexcept;

  /// Looks once at everything under way. @return whether anything moved.
  bool step_all();

  /// Ends a call with an error; out of memory too, then with fewer reports of it.
  /// @param report the kind of the report to the peers.
  void fail(Operation& operation, std::exception_ptr error,
            ControlMessage::Kind report = ControlMessage::Kind::Refusal) noexcept;
  /// Ends all calls, for good, where there is a reason, and reports it where no peer has.
  /// @return whether there is one.
  bool revoke(std::optional<Revocation::Reason> reason);
  /// Revokes all calls where the process of a rank has ended, and that is a reason. @return whether
  /// they are revoked.
  bool look_for_losses();
  /// Revokes all calls where a rank that does not come is as good as lost. @return whether it is.
  bool give_up_the_late(const Operation& operation, const std::string& why);
  /// Ends calls that wait for ranks which will not come any more.
  void fail_calls_on_dead_peers();
  /// Ends calls whose messages will never be sent, found so at several looks (`Inquiries` asks).
  void fail_unmatched_calls();
  /// Ends all calls, with `error_of(operation)`, and tries once to report it to the peers.
  template <typename ErrorOf>
  void fail_all(ErrorOf error_of) noexcept {
    for (const QueuedCall& call : parts_.queue) {
      if (!call.state().is_done()) {
        fail(*call.operation, error_from([&] { return error_of(*call.operation); }));
      }
    }
    where_memory_allows([this] { step_all(); });
    parts_.queue.clear();
  }

  /// Shows the peers up to which call all have ended.
  void show_ends() const noexcept {
    parts_.peers.note_end(parts_.queue.first_under_way(parts_.ledger.next_call()));
  }

  /// Takes messages of calls that failed here, whose writers have no room for others before,
  /// although no call here reads from them. @return whether some are off their streams.
  bool drop_messages_of_failed_calls();

  /// From now on `progress_hook` is driven too.
  void attach(std::shared_ptr<ProgressHook> progress_hook);
  /// Forgets it, and messages whose readers were not notified of their end.
  void detach() noexcept;

  /// Whether something gets on only if somebody calls `step_all`.
  [[nodiscard]] bool has_work() const;
  /// Whether nobody is woken by what is waited for.
  [[nodiscard]] bool needs_polling() const;

 private:
  bool attend();
  bool step(Operation& operation, const StepRights& rights);
  bool start_next(Operation& operation);
  void complete(Operation& operation);
  void note_failed(CallKey key) noexcept;

  bool receive_reports();
  void receive(int source, ControlMessage report);
  void receive_refusal(int source, ControlMessage report);
  void receive_rejection(int source, const ControlMessage& report);
  void receive_deadlock(int source, const ControlMessage& report);
  void fail_contradicted(const Inquiries::End& end) {
    if (end.operation != nullptr) {
      fail(*end.operation, std::make_exception_ptr(MismatchError(end.error)));
    }
  }
  void end_revoked_calls();
  /// Tells the progress hook which ranks have failed a call that is complete here.
  void report_to_hook(const Operation& operation);
  void report_dead_peers_to_hook();

  Parts parts_;
  /// Null while there is none.
  std::shared_ptr<ProgressHook> progress_hook_;
  Retractions retractions_;
  Inquiries inquiries_;
};

}  // namespace bluefog
