#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bluefog {

/// Looks after what a complete call has left under way elsewhere, on a device. The engine drives it
/// beside its transports, under its mutex; no call blocks.
class Attendant {
 public:
  Attendant() = default;
  Attendant(const Attendant&) = delete;
  Attendant& operator=(const Attendant&) = delete;
  virtual ~Attendant() = default;

  /// @return whether something came to its end.
  virtual bool attend() = 0;
  /// While it is, `attend` has to be called now and then.
  [[nodiscard]] virtual bool is_busy() const noexcept = 0;
  /// Ranks without which what is under way does not end.
  [[nodiscard]] virtual std::vector<int> awaited_ranks() const = 0;
  /// `rank` has ended that call with an error.
  /// @param is_over whether it is complete here.
  virtual void hear_failure(int rank, std::uint64_t call, const std::string& reason,
                            bool is_over) = 0;
  /// `rank` will not come any more.
  virtual void hear_death(int rank, const std::string& obituary) = 0;

  struct EndedCall {
    std::uint64_t call = 0;
    std::string reason{};
  };
  /// What it has ended of calls that are complete here, once: the other ranks are told.
  [[nodiscard]] virtual std::vector<EndedCall> take_ended_calls() = 0;
};

}  // namespace bluefog
