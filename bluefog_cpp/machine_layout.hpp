#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bluefog {

/// The machine of each rank. An immutable value.
///
/// Machines are numbered by their lowest rank; local ranks count up with the
/// rank inside a machine. Ranks of one machine need not be consecutive.
class MachineLayout {
 public:
  /// One machine that holds ranks 0 … `size` − 1. @throws InvalidArgument if `size` < 1.
  static MachineLayout single(int size);

  /// One machine per distinct host identity; `host_ids[r]` is rank r's.
  /// @throws InvalidArgument if there is none.
  static MachineLayout from_host_ids(const std::vector<std::string>& host_ids);

  /// Splits every machine into virtual ones of `ranks_per_machine` ranks each
  /// (`BLUEFOG_NODES_PER_MACHINE`).
  /// @throws InvalidArgument if it is below 1 or does not divide the ranks of a machine.
  [[nodiscard]] MachineLayout split(int ranks_per_machine) const;

  /// The number of ranks, on all machines together.
  [[nodiscard]] int size() const noexcept { return static_cast<int>(machine_of_.size()); }
  /// The number of machines, at least 1.
  [[nodiscard]] int machine_count() const noexcept { return static_cast<int>(ranks_of_.size()); }

  /// Machine that holds `rank`. @throws InvalidArgument out of 0 … size() − 1.
  [[nodiscard]] int machine_of(int rank) const;
  /// Place of `rank` among its machine's ranks, from 0. @throws InvalidArgument as `machine_of`.
  [[nodiscard]] int local_rank_of(int rank) const;
  /// Ranks of `machine`, rising.
  [[nodiscard]] const std::vector<int>& ranks_of(int machine) const;
  /// Whether one machine holds both ranks. @throws InvalidArgument as `machine_of`.
  [[nodiscard]] bool same_machine(int a, int b) const { return machine_of(a) == machine_of(b); }
  /// True if every machine holds the same number of ranks.
  [[nodiscard]] bool is_homogeneous() const noexcept;

  /// Memberwise.
  friend bool operator==(const MachineLayout&, const MachineLayout&) = default;

 private:
  explicit MachineLayout(std::vector<std::vector<int>> ranks_of);

  std::vector<std::vector<int>> ranks_of_;
  std::vector<int> machine_of_;
  std::vector<int> local_rank_of_;
};

}  // namespace bluefog
