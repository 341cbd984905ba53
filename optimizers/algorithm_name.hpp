#pragma once

#include <concepts>
#include <string_view>

namespace bluefog::optimizers {

/// The name of a registered algorithm (`register_algorithm`), as its row has it.
///
/// Any of the algorithm's names makes one; hyphens and underscores mean the same. Copies are as
/// cheap as those of a pointer, and the text lives as long as the program.
class AlgorithmName {
 public:
  /// @throws InvalidArgument if no algorithm has this name: lists those there are, and the nearest.
  template <std::convertible_to<std::string_view> Text>
  AlgorithmName(const Text& name) : text_(registered(name)) {}  // NOLINT: names are written as text

  /// The name in the algorithm's row: lower case, with underscores.
  [[nodiscard]] constexpr std::string_view text() const noexcept { return text_; }
  /// Whether the two name the same algorithm.
  friend constexpr bool operator==(const AlgorithmName&, const AlgorithmName&) = default;

  /// @name The algorithms of this library
  /// @{

  /// Their constants are named so in programs; `"extra"` says the same as `AlgorithmName::Extra`.
  /// docs/optimizers.md has their equations.
  static const AlgorithmName GradientAllreduce;
  static const AlgorithmName AdaptThenCombine;
  static const AlgorithmName AdaptWithCombine;
  static const AlgorithmName None;
  static const AlgorithmName Extra;
  static const AlgorithmName ExactDiffusion;
  static const AlgorithmName D2;
  static const AlgorithmName GradientTracking;
  static const AlgorithmName PushSum;
  static const AlgorithmName GossipPga;
  static const AlgorithmName Ceca;
  static const AlgorithmName Choco;
  static const AlgorithmName PowerGossip;
  static const AlgorithmName LocalSgd;
  static const AlgorithmName SlowMo;
  static const AlgorithmName DiLoCo;
  static const AlgorithmName StreamingDiLoCo;
  static const AlgorithmName GossipDiLoCo;
  static const AlgorithmName SparseLoCo;
  static const AlgorithmName NoLoCo;
  static const AlgorithmName AcceleratedGossip;
  static const AlgorithmName DmSgd;
  static const AlgorithmName DecentLam;
  static const AlgorithmName QuasiGlobalMomentum;
  static const AlgorithmName WinPut;
  static const AlgorithmName PullGet;
  static const AlgorithmName AsyncPushSum;
  /// @}

 private:
  struct BuiltIn {
    std::string_view text;
  };

  constexpr explicit AlgorithmName(BuiltIn name) noexcept : text_(name.text) {}

  /// The same name in memory of the registry's.
  static std::string_view registered(std::string_view name);

  std::string_view text_;
};

inline constexpr AlgorithmName AlgorithmName::GradientAllreduce{BuiltIn{"gradient_allreduce"}};
inline constexpr AlgorithmName AlgorithmName::AdaptThenCombine{BuiltIn{"adapt_then_combine"}};
inline constexpr AlgorithmName AlgorithmName::AdaptWithCombine{BuiltIn{"adapt_with_combine"}};
inline constexpr AlgorithmName AlgorithmName::None{BuiltIn{"none"}};
inline constexpr AlgorithmName AlgorithmName::Extra{BuiltIn{"extra"}};
inline constexpr AlgorithmName AlgorithmName::ExactDiffusion{BuiltIn{"exact_diffusion"}};
inline constexpr AlgorithmName AlgorithmName::D2{BuiltIn{"d2"}};
inline constexpr AlgorithmName AlgorithmName::GradientTracking{BuiltIn{"gradient_tracking"}};
inline constexpr AlgorithmName AlgorithmName::PushSum{BuiltIn{"push_sum"}};
inline constexpr AlgorithmName AlgorithmName::GossipPga{BuiltIn{"gossip_pga"}};
inline constexpr AlgorithmName AlgorithmName::Ceca{BuiltIn{"ceca"}};
inline constexpr AlgorithmName AlgorithmName::Choco{BuiltIn{"choco"}};
inline constexpr AlgorithmName AlgorithmName::PowerGossip{BuiltIn{"power_gossip"}};
inline constexpr AlgorithmName AlgorithmName::LocalSgd{BuiltIn{"local_sgd"}};
inline constexpr AlgorithmName AlgorithmName::SlowMo{BuiltIn{"slowmo"}};
inline constexpr AlgorithmName AlgorithmName::DiLoCo{BuiltIn{"diloco"}};
inline constexpr AlgorithmName AlgorithmName::StreamingDiLoCo{BuiltIn{"streaming_diloco"}};
inline constexpr AlgorithmName AlgorithmName::GossipDiLoCo{BuiltIn{"gossip_diloco"}};
inline constexpr AlgorithmName AlgorithmName::SparseLoCo{BuiltIn{"sparse_loco"}};
inline constexpr AlgorithmName AlgorithmName::NoLoCo{BuiltIn{"noloco"}};
inline constexpr AlgorithmName AlgorithmName::AcceleratedGossip{BuiltIn{"accelerated_gossip"}};
inline constexpr AlgorithmName AlgorithmName::DmSgd{BuiltIn{"dmsgd"}};
inline constexpr AlgorithmName AlgorithmName::DecentLam{BuiltIn{"decent_lam"}};
inline constexpr AlgorithmName AlgorithmName::QuasiGlobalMomentum{BuiltIn{"quasi_global_momentum"}};
inline constexpr AlgorithmName AlgorithmName::WinPut{BuiltIn{"win_put"}};
inline constexpr AlgorithmName AlgorithmName::PullGet{BuiltIn{"pull_get"}};
inline constexpr AlgorithmName AlgorithmName::AsyncPushSum{BuiltIn{"async_push_sum"}};

/// The earlier name of `AlgorithmName`.
using AlgorithmKind [[deprecated("use AlgorithmName")]] = AlgorithmName;

/// `algorithm.text()`.
[[nodiscard]] constexpr std::string_view name_of(const AlgorithmName& algorithm) noexcept {
  return algorithm.text();
}

}  // namespace bluefog::optimizers
