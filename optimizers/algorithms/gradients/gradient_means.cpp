#include "optimizers/algorithms/gradients/gradient_means.hpp"

#include "ops/collectives.hpp"
#include "optimizers/algorithms/gradients/coded_gradients.hpp"
#include "optimizers/algorithms/gradients/low_rank_gradients.hpp"

namespace bluefog::optimizers {
namespace {

/// Gradients and flags as they are, in one all-reduce.
class PlainGradients final : public GradientMeans {
 public:
  PlainGradients(Context& context, std::vector<Bucket>& buckets)
      : context_(context), buckets_(buckets), options_(buckets.size()) {
    for (std::size_t b = 0; b < buckets.size(); ++b) {
      options_[b].name = gradient_name(buckets[b]);
    }
  }

  [[nodiscard]] Work send(std::size_t b) override {
    return ops::allreduce_nonblocking(context_, buckets_[b].gradients(), options_[b]);
  }

 private:
  Context& context_;
  std::vector<Bucket>& buckets_;
  std::vector<ops::AllreduceOptions> options_;
};

}  // namespace

std::unique_ptr<GradientMeans> make_gradient_means(Context& context, std::vector<Bucket>& buckets,
                                                   const GradientCode& code) {
  if (code.compression) {
    return std::make_unique<CodedGradients>(context, buckets, code);
  }
  if (code.low_rank > 0) {
    return std::make_unique<LowRankGradients>(context, buckets, code);
  }
  return std::make_unique<PlainGradients>(context, buckets);
}

std::string gradient_name(const Bucket& bucket) { return "gradients of " + bucket.name(); }

}  // namespace bluefog::optimizers
