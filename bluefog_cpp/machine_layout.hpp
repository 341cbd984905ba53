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
  /// One machine that holds ranks 0 … `size` − 1.
  static MachineLayout single(int size);

  /// One machine per distinct host identity; `host_ids[r]` is rank r's.
  static MachineLayout from_host_ids(const std::vector<std::string>& host_ids);

  /// Splits every machine into virtual ones of `ranks_per_machine` ranks each
  /// (`BLUEFOG_NODES_PER_MACHINE`).
  /// @throws InvalidArgument if it does not divide the ranks of a machine.
  [[nodiscard]] MachineLayout split(int ranks_per_machine) const;

  [[nodiscard]] int size() const noexcept { return static_cast<int>(machine_of_.size()); }
  [[nodiscard]] int machine_count() const noexcept { return static_cast<int>(ranks_of_.size()); }

  /// Machine that holds `rank`. @throws InvalidArgument out of 0 … size() − 1.
  [[nodiscard]] int machine_of(int rank) const;
  /// Place of `rank` among its machine's ranks.
  [[nodiscard]] int local_rank_of(int rank) const;
  /// Ranks of `machine`, rising.
  [[nodiscard]] const std::vector<int>& ranks_of(int machine) const;
  [[nodiscard]] bool same_machine(int a, int b) const { return machine_of(a) == machine_of(b); }
  /// True if every machine holds the same number of ranks.
  [[nodiscard]] bool is_homogeneous() const noexcept;

  friend bool operator==(const MachineLayout&, const MachineLayout&) = default;

 private:
  explicit MachineLayout(std::vector<std::vector<int>> ranks_of);

  std::vector<std::vector<int>> ranks_of_;
  std::vector<int> machine_of_;
  std::vector<int> local_rank_of_;
};

}  // namespace bluefog
