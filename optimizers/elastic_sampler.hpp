#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "bluefog_cpp/context.hpp"

namespace bluefog::optimizers {

/// The orders in which an `ElasticSampler` deals.
struct ElasticSamplerOptions {
  bool shuffles = true;    ///< whether each epoch has an order of its own
  std::uint64_t seed = 0;  ///< of these orders, the same on all ranks
};

/// Deals the samples of a data set to the ranks, and deals anew what is left where ranks are lost, or
/// join, in the middle of an epoch: all samples of an epoch are drawn by ranks that live, each of
/// which draws as many as the others. Python's `bf.ElasticSampler` deals by the same rule.
///
/// @code
/// ElasticSampler sampler(images, *context);
/// options.when_shrunk = [&](const auto& now) { sampler.deal_anew(*now); };
/// DistributedOptimizer optimizer(context, sgd, *model, options);
/// optimizer.join();
/// for (std::int64_t epoch = sampler.epoch(); epoch < epochs; ++epoch) {
///   sampler.begin(epoch);
///   for (auto batch = sampler.next(64); !batch.empty(); batch = sampler.next(64)) { … }
/// }
/// @endcode
///
/// All ranks make theirs alike, and draw equally many samples for each step. Some samples are drawn
/// twice where their number is no multiple of that of the ranks. If a rank has drawn all of its own when
/// another one is lost, the lost rank's rest is missed in this epoch; a line in the log says how many
/// samples these may be. One thread at a time. Memory: 8 bytes a sample, twice where it was dealt
/// anew.
class ElasticSampler {
 public:
  /// @param count samples of the data set. @param context of the ranks that train; of a process that waits
  ///   to join its own.
  /// @throws InvalidArgument for a count below 1.
  ElasticSampler(std::int64_t count, const Context& context,
                 const ElasticSamplerOptions& options = {});
  /// Takes over the other one's deals; that one may only be destroyed or assigned to.
  ElasticSampler(ElasticSampler&&) noexcept;
  /// The same.
  ElasticSampler& operator=(ElasticSampler&&) noexcept;
  ~ElasticSampler();

  /// The epoch that it deals; on a process that has joined that of the others.
  [[nodiscard]] std::int64_t epoch() const noexcept;
  /// The epoch that comes; those before it are over. One that has begun already goes on: so does a
  /// process that has joined.
  /// @throws InvalidArgument for one before that.
  void begin(std::int64_t epoch);
  /// The next samples of this rank, `most` or fewer; none once it has drawn all of its own. Local.
  /// @throws InvalidArgument for fewer than 1.
  [[nodiscard]] std::vector<std::int64_t> next(std::int64_t most);
  /// The number of samples that this rank draws in the epoch.
  [[nodiscard]] std::int64_t size() const;
  /// The number of those that it has drawn.
  [[nodiscard]] std::int64_t drawn() const;

  /// Collective over the ranks of `context`, which have gone on without one that was lost, or with new
  /// ones (`DistributedOptimizerOptions::when_shrunk`): deals what none of them has drawn of the epoch
  /// that the furthest is in. New ranks get as many of it as the first has before them.
  /// @throws as `ops::allgather`; RankLostError, after which the call is made again.
  void deal_anew(Context& context);

 private:
  class Deals;
  std::unique_ptr<Deals> deals_;
};

}  // namespace bluefog::optimizers
