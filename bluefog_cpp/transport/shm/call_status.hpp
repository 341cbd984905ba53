#pragma once

#include <cstdint>
#include <string>

#include "bluefog_cpp/transport/shm/region_layout.hpp"
#include "bluefog_cpp/transport/transport.hpp"

namespace bluefog::shm {

/// The status of a rank in shared memory, which the rank writes and its peers read: its present
/// call, for error messages, and for waits that nobody can end.
class CallStatus {
 public:
  explicit CallStatus(Status& status) noexcept : status_(status) {}

  // For the rank itself.
  void note_call(CallId id, OpKind kind) noexcept;
  void note_end(std::uint64_t first_under_way) noexcept {
    status_.first_under_way.store(first_under_way, std::memory_order_release);
  }
  /// Waits of calls of two ranks, and those for a rank beyond the 65535th, are not shown.
  void note_wait(Transport::Wait wait) noexcept;
  void leave() noexcept { status_.has_left.store(true, std::memory_order_seq_cst); }

  // For its peers.
  [[nodiscard]] bool has_left() const noexcept {
    return status_.has_left.load(std::memory_order_seq_cst);
  }
  [[nodiscard]] Transport::SeenCall last_call() const noexcept;
  [[nodiscard]] std::string last_seen() const;
  [[nodiscard]] Transport::Standing standing() const noexcept;

 private:
  Status& status_;
};

}  // namespace bluefog::shm
