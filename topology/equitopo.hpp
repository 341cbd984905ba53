#pragma once

#include <cstdint>
#include <optional>

#include "topology/schedule.hpp"

/// @file
/// EquiTopo: graphs whose rate of averaging does not fall with the number of ranks.
///
/// With P_u the shift by u (rank i hears i − u mod n), the basis is
///
///     A_u = (n − 1)/n · P_u + 1/n · I,    u = 1 … n − 1
///
/// whose mean over all u is J: a few of them, drawn at random, are near J already. All follow from
/// the seed alone, the same on every machine. Every W is doubly stochastic.
/// Source: Song et al., arXiv 2210.07881.
namespace bluefog::topology {

/// The choices of `equistatic` and `equistatic_undirected`.
struct EquiStaticOptions {
  /// The seed of the draws.
  std::uint64_t seed = 1;
  /// M, the number of draws from the basis; absent: ⌈ln(n) / ρ²⌉, and if that is n − 1 or more,
  /// every A_u once (W = J).
  std::optional<int> draws = std::nullopt;
  /// The distance ‖W − J‖₂ to aim at, above 0 and at most 1. No draw is sure to reach it: the
  /// checker measures one, and `equistatic_draws` draws reach it with a chosen probability.
  double rho = 0.5;
};

/// D-EquiStatic: W = 1/M Σ_m A_{u_m}, the u_m drawn evenly from 1 … n − 1; one that is drawn twice
/// counts twice. Directed; degree at most M.
/// @throws InvalidArgument if `size` < 1, draws < 1, or ρ is not above 0 and at most 1.
[[nodiscard]] MixingMatrix equistatic(int size, const EquiStaticOptions& options = {});

/// U-EquiStatic: W = 1/(2M) Σ_m (A_{u_m} + A_{u_m}ᵀ). Symmetric; degree at most 2M. Errors as
/// `equistatic`.
[[nodiscard]] MixingMatrix equistatic_undirected(int size, const EquiStaticOptions& options = {});

/// ⌈8 ln(2n / failure) / (3 ρ²)⌉ draws, with which ‖W − J‖₂ ≤ ρ holds for D- and U-EquiStatic with
/// a probability of at least 1 − failure. Source: theorem 1 of the paper.
/// @throws InvalidArgument if `size` < 1, or ρ or failure is not above 0 and at most 1.
[[nodiscard]] int equistatic_draws(int size, double rho, double failure);

/// The choices of `equidyn` and `equidyn_undirected`.
struct EquiDynOptions {
  /// The seed of the draws.
  std::uint64_t seed = 1;
  /// The period, after which the drawn steps repeat.
  std::int64_t steps = 65'536;
  /// η, the share of the basis matrix; the rest is kept.
  double eta = 0.5;
};

/// OD-EquiDyn: in each step one u is drawn from 1 … n − 1 and W(t) = (1 − η) I + η A_u: every rank
/// sends one message and hears one.
/// @throws InvalidArgument if `size` < 1, steps < 1, or η is not above 0 and at most 1.
[[nodiscard]] Schedule equidyn(int size, const EquiDynOptions& options = {});

/// OU-EquiDyn: in each step a shift u and a first rank are drawn; from that rank on, going round,
/// i and i + u become a pair where both are still alone. W(t) = (1 − η) I + η ((n − 1)/n M + 1/n
/// I), with M the exchange within pairs, and 1 for who stays alone. Symmetric; one peer at most.
/// Errors as `equidyn`.
[[nodiscard]] Schedule equidyn_undirected(int size, const EquiDynOptions& options = {});

}  // namespace bluefog::topology
