#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bluefog_cpp/deadline.hpp"

namespace bluefog {

/// A place where the ranks of a launch leave small values for each other, by key: all that a start
/// without MPI needs (`make_store_bootstrap`).
///
/// Who implements it: this library over the launcher's store; the Python package over torch's
/// stores (`torch.distributed.Store`); a program over its own. All ranks see the same values. Keys
/// are ASCII without blanks, at most `kMaxKeyBytes`; values at most `kMaxValueBytes`. Any thread
/// may call it, and one that waits in `get` need not let others through: callers wait in slices.
///
/// Every call may throw `TransportError` where the store cannot be reached any more. A call that
/// outstays its deadline is left to itself by `make_store_bootstrap`, and is an error there. Cost:
/// one message there and one back for each call.
class Store {
 public:
  /// The value of a key.
  using Bytes = std::vector<std::byte>;

  /// Longest key that a store has to take.
  static constexpr std::size_t kMaxKeyBytes = 512;
  /// Largest value that a store has to take, 1 MiB.
  static constexpr std::size_t kMaxValueBytes = std::size_t{1} << 20;

  Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  virtual ~Store() = default;

  /// Puts `value` in the place of what `key` had.
  virtual void set(const std::string& key, std::span<const std::byte> value, Deadline deadline) = 0;

  /// The value of `key`, as soon as there is one; nothing where `deadline` passes before. With a
  /// deadline that is over it only looks.
  [[nodiscard]] virtual std::optional<Bytes> get(const std::string& key, Deadline deadline) = 0;

  /// Adds `amount` to the number of `key`, which begins at 0, and returns the sum. Numbers and
  /// values have keys of their own.
  virtual std::int64_t add(const std::string& key, std::int64_t amount, Deadline deadline) = 0;

  /// Forgets the value of `key`, if there is one.
  virtual void remove(const std::string& key, Deadline deadline) = 0;

  /// "the store of bfrun at 127.0.0.1:4711": for messages.
  [[nodiscard]] virtual std::string description() const = 0;
};

}  // namespace bluefog
