#include "examples/train_language/language_trainer.hpp"

#include <fmt/format.h>
#include <torch/torch.h>

#include <iostream>
#include <numbers>

#include "bluefog_cpp/error.hpp"
#include "examples/common/algorithm_options.hpp"
#include "examples/common/collect.hpp"
#include "examples/common/named_algorithm.hpp"
#include "examples/data/text_files.hpp"
#include "examples/train_language/half_products.hpp"
#include "examples/train_language/link_traffic.hpp"
#include "optimizers/accum_adam.hpp"
#include "optimizers/checkpoint.hpp"
#include "optimizers/consensus.hpp"
#include "optimizers/parameter_collectives.hpp"

namespace bluefog::examples {
namespace {

constexpr std::int64_t kTestBatch = 64;
/// β₁ and β₂ for language models.
constexpr double kBeta1 = 0.9;
constexpr double kBeta2 = 0.98;

std::unique_ptr<torch::optim::Optimizer> local_optimizer(const LanguageOptions& options,
                                                         std::vector<at::Tensor> parameters) {
  if (options.optimizer == "adamw") {
    return std::make_unique<torch::optim::AdamW>(std::move(parameters),
                                                 torch::optim::AdamWOptions(options.learning_rate)
                                                     .betas({kBeta1, kBeta2})
                                                     .weight_decay(options.weight_decay));
  }
  optimizers::AccumAdamWOptions accumulated(options.learning_rate);
  accumulated.betas = {kBeta1, kBeta2};
  accumulated.weight_decay = options.weight_decay;
  return std::make_unique<optimizers::AccumAdamW>(std::move(parameters), accumulated);
}

const LanguageOptions& checked(const LanguageOptions& options) {
  if (brings_momentum(options.algorithm)) {
    throw InvalidArgument(
        fmt::format("--algorithm: expected one without momentum of its own, "
                    "which AdamW has, found {}",
                    options.algorithm));
  }
  const std::filesystem::path folder = options.checkpoint.parent_path();
  if (!folder.empty() && !std::filesystem::is_directory(folder)) {
    throw InvalidArgument(fmt::format("--checkpoint {}: expected a folder that exists, found no {}",
                                      options.checkpoint.string(), folder.string()));
  }
  return options;
}

std::shared_ptr<LanguageModel> seeded_model(const LanguageOptions& options) {
  torch::manual_seed(options.seed);
  return std::make_shared<LanguageModel>(
      LanguageModelSize{options.width, options.layers, options.heads, options.length});
}

}  // namespace

LanguageTrainer::LanguageTrainer(std::shared_ptr<Context> context, const LanguageOptions& options)
    : context_(std::move(context)),
      options_(checked(options)),
      text_(read_texts(options.data), options.length, context_->rank(), context_->size()),
      model_(seeded_model(options)),
      local_(local_optimizer(options, model_->parameters())) {
  optimizers::broadcast_parameters(*context_, *model_);
  optimizer_ = std::make_unique<optimizers::DistributedOptimizer>(
      context_, *local_, *model_,
      options_of({.algorithm = options.algorithm,
                  .topology = options.schedule,
                  .local_steps = options.local_steps,
                  .momentum = 0.0,
                  .values = option_values(options.algorithm_options, {options.algorithm})},
                 context_->size()));
}

void LanguageTrainer::begin() {
  if (options_.resumes) {
    done_ =
        optimizers::load_checkpoint(options_.checkpoint.string(), *model_, *optimizer_).step_count;
  }
  std::int64_t count = 0;
  for (const at::Tensor& parameter : model_->parameters()) {
    count += parameter.numel();
  }
  if (context_->rank() == 0) {
    std::cout << fmt::format("{} parameters, {} ranks, {}, a step in {} communicates\n", count,
                             context_->size(), options_.algorithm, options_.local_steps)
              << std::flush;
  }
  (void)sent_since_last();
  since_ = Clock::now();
}

void LanguageTrainer::run() {
  begin();
  for (std::int64_t step = done_; step < options_.steps; ++step) {
    train_step(step);
    const bool is_last = step + 1 == options_.steps;
    if ((step + 1) % options_.report_every != 0 && !is_last) {
      continue;
    }
    optimizer_->finish();
    report(step + 1);
    if (!options_.checkpoint.empty()) {
      optimizers::save_checkpoint(options_.checkpoint.string(), *model_, *optimizer_);
    }
    (void)sent_since_last();
    since_ = Clock::now();
  }
}

void LanguageTrainer::train_step(std::int64_t step) {
  for (auto& group : local_->param_groups()) {
    group.options().set_lr(learning_rate_at(options_, step));
  }
  // Of the step alone, so that a run that resumes has the same windows.
  const auto ranks = static_cast<std::uint64_t>(context_->size());
  const std::uint64_t seed =
      (options_.seed * 1'000'003 + static_cast<std::uint64_t>(step)) * ranks +
      static_cast<std::uint64_t>(context_->rank());
  optimizer_->zero_grad();
  const at::Tensor loss = loss_of(text_.batch(options_.batch_size, seed));
  loss.backward();
  torch::nn::utils::clip_grad_norm_(model_->parameters(), options_.clip);
  optimizer_->step();
  loss_sum_ += loss.item<double>();
  ++steps_since_;
}

at::Tensor LanguageTrainer::loss_of(const Windows& windows) {
  at::Tensor scores;
  {
    const HalfProducts products(options_.dtype == "bfloat16" ? HalfProducts::Wanted::Yes
                                                             : HalfProducts::Wanted::No);
    scores = model_->forward(windows.bytes);
  }
  return at::cross_entropy_loss(scores.to(at::kFloat).view({-1, kBytes}),
                                windows.following.reshape(-1));
}

double LanguageTrainer::test_loss() {
  const torch::NoGradGuard no_grad;
  double sum = 0.0;
  const std::vector<Windows> batches = text_.test_batches(kTestBatch);
  for (const Windows& windows : batches) {
    sum += loss_of(windows).item<double>();
  }
  return mean_over_ranks(sum / static_cast<double>(batches.size()));
}

double LanguageTrainer::mean_over_ranks(double value) {
  return sum_over_ranks(*context_, value) / context_->size();
}

std::optional<double> LanguageTrainer::sent_since_last() {
  const std::optional<std::int64_t> now = bytes_sent_by_host();
  const bool speaks = context_->local_rank() == 0 && now;
  const double own = speaks ? static_cast<double>(*now - sent_before_) : 0.0;
  sent_before_ = now.value_or(0);
  const double total = sum_over_ranks(*context_, own);
  return now ? std::optional(total) : std::nullopt;
}

void LanguageTrainer::report(std::int64_t step) {
  const double seconds = std::chrono::duration<double>(Clock::now() - since_).count();
  const auto steps = static_cast<double>(steps_since_);
  const std::optional<double> sent = sent_since_last();
  const double training = mean_over_ranks(loss_sum_ / steps);
  const double loss = test_loss();
  const double distance = optimizers::consensus_distance(*context_, *model_);
  const double tokens =
      steps * static_cast<double>(options_.batch_size * options_.length * context_->size()) /
      seconds;
  const std::string link =
      sent ? fmt::format(", {:.3f} MB a step between hosts", *sent / steps / 1e6) : std::string();
  if (context_->rank() == 0) {
    std::cout << fmt::format(
                     "Step {}/{}: training loss {:.3f}, test loss {:.3f} ({:.3f} bits a byte), "
                     "consensus distance {:.2e}, {:.0f} tokens/s{}\n",
                     step, options_.steps, training, loss, loss / std::numbers::ln2, distance,
                     tokens, link)
              << std::flush;
  }
  loss_sum_ = 0.0;
  steps_since_ = 0;
}

}  // namespace bluefog::examples
