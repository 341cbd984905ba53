#pragma once

#include "topology/schedule.hpp"

/// @file
/// Schedules that average exactly after one period although no rank has more than k neighbours in
/// any step: the product of a period's matrices is J, up to rounding. Every W(t) is symmetric and
/// doubly stochastic. More than n − 1 peers are as n − 1.
///
/// A plan costs O(k + log n) and nothing is stored per rank, so that 100,000 ranks are as quick to
/// make as ten. Messages: a rank sends at most `peers` per step and hears as many.
///
/// All throw InvalidArgument if `size` < 1 or `peers` < 1.
/// Source: Takezawa et al., arXiv 2305.11420.
namespace bluefog::topology {

/// Ranks are the points of a grid with extents f₀ · f₁ ⋯ = n, each at most k + 1 and as few as
/// there can be. In step t the ranks that differ in coordinate t alone average, with weights 1/f_t;
/// the period is the number of extents.
/// @param peers k, the most neighbours that a rank has in a step.
/// @throws InvalidArgument if n has a prime factor above k + 1.
/// Source: algorithm 1 of the paper, the k-peer hyper-hypercube graph.
[[nodiscard]] Schedule hyper_hypercube(int size, int peers);

/// A schedule for any n. In base k + 1, n = Σ_l a_l (k + 1)^{p_l} with p_0 > p_1 > … and a_l ≤ k;
/// part l has the ranks of that term. If n is the size of a hyper-hypercube, the schedule is that
/// hyper-hypercube. Else
///
/// 1. every part averages inside itself, as a hyper-hypercube;
/// 2. in turn for l = 0, 1, …: each rank of the parts after l exchanges with one rank of each of
///    part l's a_l blocks of s = (k + 1)^{p_l} ranks, with weight s / (ranks in part l and after);
/// 3. as soon as a part has had its turn, its blocks average inside.
///
/// Ranks with nothing to do go on averaging within their part. This changes nothing for values that
/// stay as they are meanwhile, and helps values that are renewed (decentralized SGD).
/// Period: rounds of part 0 + 1 + p_0 ≤ 2 log_{k+1} n + 2.
/// Source: algorithm 2 of the paper, the simple base-(k+1) graph.
[[nodiscard]] Schedule simple_base_graph(int size, int peers);

/// A schedule for any n with the fewest steps: n = p · q with p a hyper-hypercube's size; each of p
/// blocks of q ranks averages as a simple base-(k+1) graph, then each of the q sets of like ranks
/// as a hyper-hypercube. All such p are tried, among them p = 1 and the largest, the two that the
/// paper compares; so the period is never longer than the paper's.
/// Source: algorithm 3 of the paper, the base-(k+1) graph.
[[nodiscard]] Schedule base_graph(int size, int peers);

}  // namespace bluefog::topology
