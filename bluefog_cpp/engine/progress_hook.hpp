#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bluefog {

/// Looks after work that complete calls have left under way on a device. The engine drives it
/// beside its transports, under its mutex; no function blocks.
class ProgressHook {
 public:
  ProgressHook() = default;
  ProgressHook(const ProgressHook&) = delete;
  ProgressHook& operator=(const ProgressHook&) = delete;
  virtual ~ProgressHook() = default;

  /// @return whether something came to its end.
  virtual bool attend() = 0;
  /// Whether `attend` has to be called now and then.
  [[nodiscard]] virtual bool is_busy() const noexcept = 0;
  /// Ranks without which the work under way does not end.
  [[nodiscard]] virtual std::vector<int> awaited_ranks() const = 0;
  /// `rank` has ended that call with an error.
  /// @param is_over whether it is complete here.
  virtual void note_failure(int rank, std::uint64_t call, const std::string& reason,
                            bool is_over) = 0;
  /// `rank` will not come any more.
  virtual void note_death(int rank, const std::string& cause_of_death) = 0;

  struct EndedCall {
    std::uint64_t call = 0;
    std::string reason{};
  };
  /// Calls, complete here, whose rest it has ended, each once, for the other ranks.
  [[nodiscard]] virtual std::vector<EndedCall> take_ended_calls() = 0;
};

}  // namespace bluefog
