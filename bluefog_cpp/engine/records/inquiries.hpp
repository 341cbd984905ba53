#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bluefog_cpp/engine/call_ledger.hpp"
#include "bluefog_cpp/engine/call_queue.hpp"
#include "bluefog_cpp/engine/operation.hpp"
#include "bluefog_cpp/engine/peers.hpp"
#include "bluefog_cpp/transport/message.hpp"

namespace bluefog {

/// Asks ranks whose message does not come as what they make the call, and remembers what this rank
/// is asked. Two ranks that each take themselves for the root of a gather send each other nothing
/// by which they could compare their calls.
///
/// Used under the engine's mutex.
class Inquiries {
 public:
  /// All outlive this object.
  Inquiries(Peers& peers, const CallQueue& queue, CallLedger& ledger)
      : peers_(peers), queue_(queue), ledger_(ledger) {}

  /// A look at the first call of all ranks that runs. Where nothing has moved in it for 200 ms,
  /// each rank whose message it lacks is asked, once.
  void look();

  /// A call of all ranks is complete here: it is known for a while as what it was made.
  void note_complete(const Operation& operation);

  /// A call that has to end, and its error.
  struct End {
    Operation* operation = nullptr;  ///< null: there is none
    std::string error{};
  };
  [[nodiscard]] static bool is_about(ControlMessage::Kind kind) noexcept {
    return kind == ControlMessage::Kind::Inquiry || kind == ControlMessage::Kind::Contradiction;
  }
  /// `source` asks or answers. An inquiry about a call that was made as another one is answered; one
  /// about a call to come is kept.
  [[nodiscard]] End hear(int source, ControlMessage report);

  [[nodiscard]] bool has_kept() const noexcept { return !kept_.empty(); }
  /// This rank makes `call` now, about which others may have asked.
  [[nodiscard]] End hear_kept(std::uint64_t call);

 private:
  /// What a rank with many calls under way has completed meanwhile.
  static constexpr std::size_t kKept = 64;
  struct Past {
    std::uint64_t call = 0;
    Envelope envelope{};
    /// Of the envelope's name, whose memory may be gone. Written in place: every call comes here.
    std::array<char, kMaxNameBytes> text;
  };

  [[nodiscard]] End end_of(Operation& operation, const std::string& why) const;
  [[nodiscard]] std::string past(std::uint64_t call) const;

  Peers& peers_;
  const CallQueue& queue_;
  CallLedger& ledger_;
  std::vector<std::pair<int, ControlMessage>> kept_;
  /// The call that is looked at, how far it is, since when, and whether others were asked about it.
  std::uint64_t call_ = 0;
  std::uint64_t moves_ = 0;
  std::chrono::steady_clock::time_point since_{};
  bool has_asked_ = false;
  std::array<Past, kKept> past_{};
};

}  // namespace bluefog
