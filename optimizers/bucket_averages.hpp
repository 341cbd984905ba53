#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "bluefog_cpp/buffer_view.hpp"
#include "bluefog_cpp/context.hpp"
#include "bluefog_cpp/work.hpp"
#include "ops/collectives.hpp"
#include "ops/neighbor_allreduce.hpp"
#include "optimizers/algorithm.hpp"
#include "optimizers/parameter.hpp"
#include "optimizers/round_calls.hpp"

namespace bluefog::optimizers {

/// One call for each bucket's buffer, in the buckets' order. A buffer travels while the next ones
/// are prepared.
template <typename Options>
class BucketCalls {
 public:
  /// @param context outlives this object; so does the memory of `buffers`.
  /// @param names of the buffers, equal on all ranks.
  BucketCalls(Context& context, std::vector<BufferView> buffers,
              const std::vector<std::string>& names)
      : context_(context),
        buffers_(std::move(buffers)),
        options_(buffers_.size()),
        works_(buffers_.size()) {
    for (std::size_t b = 0; b < buffers_.size(); ++b) {
      options_[b].name = names[b];
    }
  }

 protected:
  /// Calls `make_ready(b)`, then `start(b)`, for every b; returns when all have arrived.
  template <typename MakeReady, typename Start>
  void run_all(MakeReady&& make_ready, Start&& start) {
    run_overlapped_round(context_, buffers_.size(), works_, [&](std::size_t& issued) {
      for (std::size_t b = 0; b < buffers_.size(); ++b) {
        make_ready(b);
        ++issued;
        works_[b] = start(b);
      }
    });
  }

  Context& context_;                 ///< on which the calls are made
  std::vector<BufferView> buffers_;  ///< one for each bucket
  std::vector<Options> options_;     ///< of the call of each, its name among them
  std::vector<Work> works_;          ///< the calls under way; complete ones between rounds
};

/// Averages over the ranks of the round, which are the neighbours unless it says otherwise.
class NeighborAverages : public BucketCalls<ops::NeighborAllreduceOptions> {
 public:
  using BucketCalls::BucketCalls;

  /// Calls `make_ready(b)`, then averages buffer b, for every b; returns when all have arrived.
  template <typename MakeReady>
  void run(const Round& round, MakeReady&& make_ready) {
    if (round.averaging == Averaging::Nobody) {
      for (std::size_t b = 0; b < buffers_.size(); ++b) {
        make_ready(b);
      }
      return;
    }
    run_all(make_ready, [&](std::size_t b) {
      return b + 1 < buffers_.size() ? start(round, b) : average(round, b);
    });
  }

  /// Begins the average of buffer b, in place. The round's first call is that of buffer 0.
  [[nodiscard]] Work start(const Round& round, std::size_t b);
  /// The same into `output`; over neighbours only.
  [[nodiscard]] Work start(const Round& round, std::size_t b, const BufferView& output);

 private:
  [[nodiscard]] Work average(const Round& round, std::size_t b);
  const ops::NeighborAllreduceOptions& options_for(const Round& round, std::size_t b);
};

/// The same with the mean over all ranks in place of the neighbours' average.
class GlobalAverages : public BucketCalls<ops::AllreduceOptions> {
 public:
  using BucketCalls::BucketCalls;

  /// Calls `make_ready(b)`, then averages buffer b, for every b; returns when all have arrived.
  template <typename MakeReady>
  void run(MakeReady&& make_ready) {
    run_all(make_ready, [&](std::size_t b) {
      return ops::allreduce_nonblocking(context_, on_current_stream(buffers_[b]), options_[b]);
    });
  }
};

/// Each bucket's `values`.
[[nodiscard]] std::vector<BufferView> values_of(const std::vector<Bucket>& buckets);
/// Each bucket's name, the same on all ranks.
[[nodiscard]] std::vector<std::string> names_of(const std::vector<Bucket>& buckets);

/// Tells autograd that every bucket's parameters have changed.
void note_changes(const std::vector<Bucket>& buckets);

}  // namespace bluefog::optimizers
