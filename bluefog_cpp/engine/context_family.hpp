#pragma once

#include <mutex>
#include <string>
#include <vector>

namespace bluefog {

class Engine;

/// The engines of contexts that were copied from one another. Calls of one are in no order with
/// those of another, so a rank that is missed in one may be waiting in another.
///
/// Thread-safe.
class ContextFamily {
 public:
  /// @param engine until `remove`.
  void add(Engine& engine);
  void remove(const Engine& engine);

  /// Says what `rank` has begun in other contexts than that of `here` and this rank has not, for
  /// messages about waits that took too long; empty if nothing is known of.
  [[nodiscard]] std::string ahead_elsewhere(int rank, const Engine& here) const;

 private:
  mutable std::mutex mutex_;
  std::vector<Engine*> engines_;
};

}  // namespace bluefog
