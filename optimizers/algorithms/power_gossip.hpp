#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "optimizers/algorithm.hpp"
#include "optimizers/algorithms/codes/low_rank.hpp"
#include "topology/schedule.hpp"

namespace bluefog::optimizers {

/// PowerGossip: adapt-then-combine whose ranks send factors of what they differ by. For an edge of
/// ranks i < j and a parameter as a matrix, D = Xᵢ − Xⱼ, with a factor q that goes on from round to
/// round, a round is one power iteration:
///
///     p = D q, orthonormal;   q ← Dᵀ p;   Xᵢ ← Xᵢ − W(i, j) p qᵀ;   Xⱼ ← Xⱼ + W(i, j) p qᵀ
///
/// D is of two ranks that see a part of it each: both send X q, then Xᵀ p. One rank gets what the
/// other one gives, so that the mean stays however low the rank is, and there is no step size to
/// choose. Where D is of rank r or less the round is that of adapt-then-combine. Vectors, and
/// matrices whose factors are no shorter, are averaged as they are.
///
/// A number of the factors goes along: ranks of an edge that have others (a round has failed on one
/// of them, or one has read other state) leave its matrices alone for this round, and begin anew.
///
/// Cost per rank and round: two neighbor_allgather of bytes, in which every neighbour gets the factors
/// of all edges, r (rows + columns) numbers of each matrix and edge; four products of r columns for
/// each edge; factors q for each edge.
/// Source: PowerGossip, arXiv 2008.01425.
class PowerGossip final : public Algorithm {
 public:
  /// @param context, buckets outlive this object. @param schedule that rounds average with.
  /// @throws UnsupportedError for parameters on a device, or of 16 bits.
  PowerGossip(Context& context, std::vector<Bucket>& buckets, const Schedule& schedule,
              std::int64_t rank);

  /// Two, whatever the number of buckets.
  [[nodiscard]] std::size_t calls_due() const override { return 2; }
  void step(const Round& round, const StepBucket& step_bucket) override;
  /// "edge to rank 1, factor of w", ….
  [[nodiscard]] NamedTensors state() const override;
  void restart() override;

 private:
  /// A parameter, with its places in messages, in bytes.
  struct Part {
    std::size_t bucket = 0;
    std::size_t segment = 0;
    MatrixShape shape{};
    std::size_t first = 0;
    std::size_t later = 0;
  };
  /// The factors of one edge, by matrix.
  using Edge = std::vector<at::Tensor>;
  /// An edge in the round under way.
  struct Meeting {
    int rank = 0;
    double weight = 0.0;
    /// Tells this rank's factors from others.
    std::uint64_t factors = 0;
    /// Whether the other rank has the same.
    bool is_alike = false;
    /// For each matrix: X q, then p; and Xᵀ p.
    std::vector<at::Tensor> p{};
    std::vector<at::Tensor> q{};
  };
  using Bytes = std::shared_ptr<std::vector<std::byte>>;
  /// Messages of sources, one after the other.
  struct Incoming {
    std::vector<std::byte> bytes;
    std::vector<std::size_t> lengths;
  };

  void add_part(std::size_t bucket, std::size_t segment, std::int64_t rank);
  Edge& edge_to(int rank);
  [[nodiscard]] at::Tensor matrix_of(const Part& part) const;
  [[nodiscard]] std::vector<Meeting> begin(const Round& round);
  [[nodiscard]] Bytes first_message(const std::vector<Meeting>& meetings);
  [[nodiscard]] Bytes later_message(const std::vector<Meeting>& meetings) const;
  [[nodiscard]] std::shared_ptr<Incoming> exchange(const Bytes& message, const Round& round,
                                                   ops::PlanCheck check, const char* name);
  [[nodiscard]] static std::span<const std::byte> message_of(const Incoming& messages,
                                                             std::size_t s);
  /// The entry for this rank in the message of the source at place `s`.
  [[nodiscard]] std::span<const std::byte> entry_of(const Incoming& messages, std::size_t s,
                                                    std::size_t common, std::size_t length) const;
  void meet(const Incoming& messages, std::vector<Meeting>& meetings);
  void take_in(const Incoming& first, const Incoming& later, const Bytes& own,
               std::vector<Meeting>& meetings);

  Context& context_;
  std::vector<Part> matrices_;
  std::vector<Part> vectors_;
  /// The bytes of all vectors, of all p of an edge, and of all q.
  std::size_t vector_bytes_ = 0;
  std::size_t p_bytes_ = 0;
  std::size_t q_bytes_ = 0;
  std::map<int, Edge> edges_;
};

}  // namespace bluefog::optimizers
