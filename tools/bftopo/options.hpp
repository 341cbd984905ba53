#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "topology/edge_list.hpp"
#include "topology/families.hpp"
#include "topology/step_cost.hpp"

namespace bluefog::bftopo {

/// A command line that bftopo cannot use; the process ends with code 2.
class UsageError : public InvalidArgument {
 public:
  using InvalidArgument::InvalidArgument;
};

enum class Command { Show, Check, Gap, Simulate, Draw, List };

enum class PictureFormat { Dot, Svg };

/// The command line of bftopo.
struct Options {
  Command command = Command::List;
  /// The only text to print, unless it is empty.
  std::string help_text;

  /// FAMILY or FILE, as written.
  std::string subject;
  /// Null for a file.
  const topology::Family* family = nullptr;
  topology::FamilyOptions family_options;
  /// The rule for a file without weights; unset if the command names none.
  std::optional<topology::WeightRule> rule{};

  /// Ranks that are lost, as written.
  std::vector<int> without;

  bool json = false;
  /// check: columns are to sum to 1, as push-sum asks, and not rows.
  bool push_sum = false;
  /// show, draw: this step only.
  std::optional<std::int64_t> step;
  /// show: ranks that are printed.
  int rank_limit = 32;

  /// simulate: averaging steps; absent: two periods, at least 20 and at most 200.
  std::optional<std::int64_t> simulated_steps;
  /// simulate, and bytes of check.
  topology::CostModel cost;

  PictureFormat format = PictureFormat::Dot;
  /// draw: the output file; empty for standard output.
  std::string output;
};

/// Reads the arguments of bftopo, its own name left out.
/// @throws UsageError saying which option, what was expected and what was found.
[[nodiscard]] Options parse_options(const std::vector<std::string>& arguments);

}  // namespace bluefog::bftopo
