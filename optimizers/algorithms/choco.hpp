#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "bluefog_cpp/work.hpp"
#include "ops/compression.hpp"
#include "optimizers/algorithm.hpp"
#include "optimizers/algorithms/codes/decoding.hpp"
#include "optimizers/options.hpp"
#include "topology/schedule.hpp"

namespace bluefog::optimizers {

/// CHOCO-SGD: adapt-then-combine whose ranks send codes of what has changed. Each rank i keeps a
/// copy x̂ᵢ of what it has told, and its listeners keep the same one:
///
///     ψ = x − γ d;   x̂ᵢ ← x̂ᵢ + C(ψᵢ − x̂ᵢ);   x ← ψ + κ Σⱼ W(i, j) (x̂ⱼ − x̂ᵢ)
///
/// with C the compression and κ the consensus step size. Copies have the same bits at both ends, so
/// that with rows and columns that sum to 1 the mean over ranks stays where the local steps put it,
/// however rough C is; as ranks come to agree the differences vanish, and with them C's error. κ = 1
/// serves codes of large δ (`Compression::contraction`); `sign` and a `topk` of few diverge with it
/// and want a smaller one.
///
/// A schedule of several matrices has copies for each of them: a copy is due to one link.
///
/// Where all ranks begin with the same model, as after a broadcast, copies begin with it, too: before
/// the first round, but not after a restart, ranks compare a number of it (64 bits). Elsewhere, or where
/// the first round has failed, the first message on a link is ψ itself, x̂ᵢ = ψᵢ: a code of few values would take as many rounds as it
/// leaves values out before copies are near the model. Later ones say which copy their code is added
/// to. A rank whose round fails, or whose copy is not finite, begins anew with ψ, and its listeners
/// with it. A listener that lacks a code (its round alone has failed) has an error in each round on
/// that link, after its local step, until all ranks restart.
///
/// Cost per rank and round: one neighbor_allgather of bytes for each bucket, of the code's length (of
/// the model's in the first round of each matrix, where ranks begin with different models); a copy of
/// the model for each matrix of the schedule and each of its sources; once an allgather of 16 bytes.
/// Source: arXiv 1902.00340, 1907.09356.
class Choco final : public Algorithm {
 public:
  /// @param context, buckets outlive this object. @param schedule that rounds average with.
  /// @throws UnsupportedError for parameters on a device, or of 16 bits.
  Choco(Context& context, std::vector<Bucket>& buckets, const Schedule& schedule,
        std::shared_ptr<const ops::Compression> compression, double consensus_step_size);

  [[nodiscard]] std::size_t calls_due() const override;
  void step(const Round& round, const StepBucket& step_bucket) override;
  void step_alone(const StepBucket& step_bucket) override;
  [[nodiscard]] NamedTensors state() const override;
  void restart() override;
  void expect(bool communicates) override { is_round_next_ = communicates; }
  void forget_round() override;

 private:
  /// The copies of one rank's parameters on one link, by bucket, with a number that is the same at
  /// both ends and nowhere else; 0 where nothing has been told.
  struct Copies {
    std::vector<at::Tensor> values;
    at::Tensor identity;
  };
  /// The links of one matrix of the schedule: this rank's own copies, and those of its sources.
  struct Links {
    Copies own;
    std::vector<Copies> sources;
  };

  /// The effect of a source's message on its copy.
  struct Following {
    bool begins_anew = false;
    std::int64_t identity = 0;
  };

  [[nodiscard]] Links make_links(std::size_t source_count) const;
  /// Keeps the model before its first step, in this rank's own copies.
  void keep_start_once();
  /// Has copies begin with it where all ranks have the same.
  void compare_start();
  /// Has them begin with nothing: the ranks' starts will not be compared any more.
  void pass_over_start();
  /// The messages of a bucket's sources, one after the other.
  struct Incoming {
    std::vector<std::byte> bytes;
    std::vector<std::int64_t> lengths;
  };

  [[nodiscard]] std::size_t message_bytes(std::size_t bucket, bool begins_anew) const;
  [[nodiscard]] std::int64_t new_identity();
  bool tell(const Copies& own, std::int64_t after, std::size_t bucket);
  bool encode(const at::Tensor& copy, std::span<std::byte> code, std::size_t bucket);
  /// The message of source `s`.
  [[nodiscard]] std::span<const std::byte> message_of(std::size_t s, std::size_t bucket) const;
  void check_lengths(const Following& following, std::size_t s, int rank, std::int64_t round) const;
  /// @return whether all that was coded is finite.
  bool exchange(const Links& links, const Round& round, const StepBucket& step_bucket);
  [[nodiscard]] std::vector<Following> followings(const Links& links, const Round& round) const;
  void try_followings(const std::vector<Following>& all);
  void take_in(const Links& links, const Round& round);
  static void forget(const Copies& copies);

  Context& context_;
  std::shared_ptr<const ops::Compression> compression_;
  double consensus_step_size_;
  std::vector<Links> links_;
  std::vector<std::string> names_;
  /// Messages, by bucket: what is sent, and what comes.
  std::vector<std::shared_ptr<std::vector<std::byte>>> outgoing_;
  std::vector<std::shared_ptr<Incoming>> incoming_;
  /// The values that are coded, and those that were decoded.
  std::vector<float> difference_;
  std::vector<Work> works_;
  /// How far this rank is with the model of the beginning, and a number of it.
  at::Tensor start_;
  /// Whether this object's ranks have compared theirs, or a round that would have done it is over: the
  /// call is one that all make, or refuse, in the same round. No state.
  bool has_compared_ = false;
  bool is_round_next_ = true;
  std::mt19937_64 random_;
};

/// Why ranks cannot keep copies for the schedule; empty if they can.
[[nodiscard]] std::string why_no_copies(const DistributedOptimizerOptions& options,
                                        const Schedule& schedule);
/// Why they cannot for plans of one round: always.
[[nodiscard]] std::string why_no_copies_for_plans(const DistributedOptimizerOptions& options);

}  // namespace bluefog::optimizers
