#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bluefog_cpp/device/cuda/cuda_api.hpp"
#include "bluefog_cpp/device/device_link.hpp"
#include "bluefog_cpp/engine/progress_hook.hpp"

namespace bluefog {

/// A call whose work is on the device's stream.
struct LaunchedCall {
  std::uint64_t call = 0;
  /// "neighbor_allreduce(float32[1024])".
  std::string text{};
  /// Ranks that it sends to or hears.
  std::vector<int> partners{};
  gpu::EventHandle done = nullptr;
  /// Whatever the device uses meanwhile, and the flag.
  std::shared_ptr<const void> keep{};
  /// Set when the channel ends before that; null for calls that go on then.
  std::atomic<bool>* cut_short = nullptr;
  /// All exchanges of the call are launched, although it may not be complete yet.
  bool is_whole = false;
};

/// The calls whose work is on a channel's stream, in its order, until the device has done with
/// them or the channel ends; under the engine's mutex.
class LaunchedCalls {
 public:
  using Clock = std::chrono::steady_clock;

  /// How often the device is asked whether it is done.
  static constexpr std::chrono::microseconds kLookPeriod{50};

  /// @param timeout of a call; zero: none.
  LaunchedCalls(std::shared_ptr<gpu::CudaApi> cuda, int rank, std::chrono::nanoseconds timeout)
      : cuda_(std::move(cuda)), rank_(rank), timeout_(timeout) {}

  void add(LaunchedCall call);
  [[nodiscard]] bool is_empty() const noexcept { return calls_.empty(); }
  /// Whether nothing is under way that may wait for another rank's device. From any thread.
  [[nodiscard]] const std::shared_ptr<std::atomic<bool>>& is_quiet() const noexcept {
    return is_quiet_;
  }

  /// Whether calls that were cut short are still under way: CUDA would wait for them wherever
  /// memory is given back. From any thread.
  [[nodiscard]] const std::shared_ptr<std::atomic<bool>>& is_stuck() const noexcept {
    return is_stuck_;
  }

  /// Lets go of the calls that are done; the device has been entered.
  /// @return whether there were any. @throws CudaError.
  bool take_finished();
  /// Does so until all are done, or for that long.
  void wait(std::chrono::nanoseconds longest);
  /// Whether it is time to look again, and notes that somebody does.
  [[nodiscard]] bool is_due(Clock::time_point now);
  /// Checks the first call, which is not done: whether the link works, the ranks that it needs are
  /// there, and its time has not passed.
  /// @throws NcclError, PeerFailure, TimeoutError.
  void check(DeviceLink& link, Clock::time_point now);

  /// Ranks without which the first call does not end, as long as none is known to be dead.
  [[nodiscard]] std::vector<int> awaited_ranks() const;
  /// `rank` will not come any more: the first call gets the time for its last bytes.
  void note_death(int rank, const std::string& cause_of_death);
  /// The failure of a call here that needs `rank`, which has ended it with an error; null where
  /// there is no such call.
  /// @param is_over whether the call is complete here.
  [[nodiscard]] std::exception_ptr failure_by(int rank, std::uint64_t call,
                                              const std::string& reason, bool is_over) const;

  /// Who is notified of calls that are cut short.
  enum class Notify : std::uint8_t { Nobody, OtherRanks };
  /// Marks the calls that do not end without their channel. @param cause for the notified.
  void cut_short(const std::string& cause, Notify notify);
  /// Whether other ranks have not been notified yet of some calls that were cut short.
  [[nodiscard]] bool has_news() const noexcept { return !news_.empty(); }
  [[nodiscard]] std::vector<ProgressHook::EndedCall> take_news() {
    return std::exchange(news_, {});
  }

  /// Nobody looks after the calls any more: those that are not done are stuck for good.
  void give_up() noexcept;
  /// Lets go of all calls: of a device that tells nothing any more, or at the end.
  void clear() noexcept { calls_.clear(); }

 private:
  void note_state();

  std::shared_ptr<gpu::CudaApi> cuda_;
  int rank_;
  std::chrono::nanoseconds timeout_;
  std::deque<LaunchedCall> calls_;
  std::shared_ptr<std::atomic<bool>> is_quiet_ = std::make_shared<std::atomic<bool>>(true);
  std::shared_ptr<std::atomic<bool>> is_stuck_ = std::make_shared<std::atomic<bool>>(false);
  std::vector<ProgressHook::EndedCall> news_;
  Clock::time_point last_look_{};
  /// When a call last came to its end, or the first one began.
  Clock::time_point moved_{};
  /// Why a rank that the first call needs will not come any more, and since when that is known.
  std::exception_ptr death_;
  int dead_rank_ = -1;
  Clock::time_point death_noted_at_{};
};

}  // namespace bluefog
