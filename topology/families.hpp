#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "topology/schedule.hpp"
#include "topology/static_graphs.hpp"

/// @file
/// Graphs and schedules by name, for command lines: one table, used by `bftopo` and the examples.
namespace bluefog::topology {

/// The inputs of a family, which reads `size` and the options that `Family::options` names.
struct FamilyOptions {
  int size = 1;  ///< the number of ranks
  /// k: most neighbours per step (base, simple-base, hyper-hypercube).
  int peers = 1;
  /// Base of the distances; absent: the family's own.
  std::optional<int> base = std::nullopt;
  /// Ranks per machine, a divisor of `size`.
  int local_size = 1;
  /// The seed of what is drawn; the same draws on every machine.
  std::uint64_t seed = 1;
  /// Steps after which a randomly drawn schedule repeats.
  std::int64_t period_steps = 65'536;
  /// Draws of EquiStatic; absent: ⌈ln(n) / ρ²⌉.
  std::optional<int> draws = std::nullopt;
  /// ρ of EquiStatic, the distance ‖W − J‖₂ to aim at; above 0, at most 1.
  double rho = 0.5;
  /// η of EquiDyn, the share of the basis matrix.
  double eta = 0.5;
  /// Extents of mesh and torus; absent: the closest factors.
  std::optional<GridShape> shape = std::nullopt;
  /// The hub of star.
  int center = 0;
};

/// The form of a family's averaging steps.
enum class FamilyKind {
  /// One matrix.
  Static,
  /// A matrix per step.
  Dynamic,
  /// A matrix per step; needs to know the machines.
  Machines,
  /// Two variables per rank, so no mixing matrix: see topology/ceca.hpp.
  TwoVariables,
};

/// A graph or schedule that has a name.
struct Family {
  std::string_view name;                 ///< lower case, with hyphens
  FamilyKind kind = FamilyKind::Static;  ///< the form of its steps
  /// A few words for a list.
  std::string_view description;
  /// Options that the family reads besides the size, named as `bftopo`'s options without dashes:
  /// "k", "base", "local-size", "seed", "period", "draws", "rho", "eta", "shape", "center".
  std::vector<std::string_view> options;
  /// Makes the schedule, with the errors of the family's builder. Empty for `TwoVariables`.
  std::function<Schedule(const FamilyOptions&)> make;
};

/// All families, related ones side by side.
[[nodiscard]] const std::vector<Family>& families();

/// The family of that name, in memory that lives as long as the program.
/// @throws InvalidArgument if there is none; lists the names.
[[nodiscard]] const Family& find_family(std::string_view name);

/// The names of `families()`, in order.
[[nodiscard]] std::vector<std::string> family_names();

/// Names of schedules that need only a number of ranks, those of kinds `Static` and `Dynamic`.
[[nodiscard]] std::vector<std::string> schedule_names();

/// The schedule of the family of that name; a static family's is one matrix for all steps.
/// @throws InvalidArgument as `find_family`, and as the family's builder does; UnsupportedError for
///   a family of kind `TwoVariables`.
[[nodiscard]] Schedule make_schedule(std::string_view name, const FamilyOptions& options);

}  // namespace bluefog::topology
