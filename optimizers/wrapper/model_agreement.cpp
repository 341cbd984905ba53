#include "optimizers/wrapper/model_agreement.hpp"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include "bluefog_cpp/context/context_core.hpp"
#include "bluefog_cpp/error.hpp"
#include "optimizers/algorithms/registry/algorithm_choice.hpp"
#include "optimizers/buckets/gradient_hooks.hpp"
#include "optimizers/checks/agreement.hpp"
#include "optimizers/checks/model_statement.hpp"
#include "optimizers/wrapper/states/moments.hpp"

namespace bluefog::optimizers {
namespace {

/// Buckets are small in a backward pass: some must leave early, and the last one, which nothing
/// hides, must be short. A sum over all ranks has more messages than an average with neighbours.
constexpr std::int64_t kFirstBucketInBackward = std::int64_t{1} << 20;
constexpr std::int64_t kAverageInBackward = std::int64_t{1} << 20;
constexpr std::int64_t kSumInBackward = std::int64_t{2} << 20;

BucketSizes bucket_sizes(const DistributedOptimizerOptions& options, const Settings& settings) {
  const bool leave_in_backward = has_gradient_hooks(options);
  std::int64_t bytes = options.bucket_bytes;
  if (bytes <= 0) {
    bytes = settings.fusion_threshold_bytes;
    if (leave_in_backward) {
      bytes = std::min(bytes, options.step_in_backward ? kAverageInBackward : kSumInBackward);
    }
  }
  return {.first = leave_in_backward ? std::min(bytes, kFirstBucketInBackward) : bytes,
          .others = bytes};
}

/// Looked for where nothing else is wrong.
std::vector<ChosenNumber> choose(Statement& statement, const DistributedOptimizerOptions& options,
                                 int size) {
  std::vector<ChosenNumber> chosen;
  try {
    chosen = statement.problem.empty() ? chosen_numbers(options, size) : chosen;
  } catch (const Error& error) {
    statement.problem = error.what();
  }
  for (const ChosenNumber& number : chosen) {
    statement.lines.push_back(fmt::format("{} {}, chosen by {}", number.option, number.value,
                                          name_of(options.algorithm)));
  }
  return chosen;
}

/// Functions of a row from outside the library may fail on this rank alone. Returns what they throw.
std::exception_ptr try_schedule(Statement& statement, const DistributedOptimizerOptions& options,
                                int size) {
  if (!statement.problem.empty() || options.plans || is_built_in(row_of(options.algorithm))) {
    return nullptr;
  }
  try {
    (void)mixing_of(options, size);
  } catch (const std::exception& error) {
    statement.problem = error.what();
    return std::current_exception();
  }
  return nullptr;
}

}  // namespace

AgreedModel agree_on_model(Context& context, const torch::optim::Optimizer& optimizer,
                           const NamedTensors& parameters,
                           const DistributedOptimizerOptions& options) {
  ModelParameters sorted = sort_parameters(parameters, optimizer);
  const BucketSizes sizes = bucket_sizes(options, context.settings());
  Statement statement = statement_of(sorted, options, sizes.others);
  if (statement.problem.empty()) {
    statement.problem = why_invalid(options, context.size());
  }
  if (statement.problem.empty()) {
    statement.problem = why_untrainable(parameters, sorted, optimizer);
  }
  if (statement.problem.empty()) {
    statement.problem = why_untrainable(row_of(options.algorithm), sorted.trained);
  }
  if (statement.problem.empty()) {
    statement.problem = why_elsewhere(sorted.trained, context);
  }
  if (statement.problem.empty()) {
    statement.problem = why_doubled_momentum(row_of(options.algorithm), optimizer);
  }
  if (statement.problem.empty()) {
    statement.problem = why_no_moments(options, optimizer);
  }
  if (statement.problem.empty()) {
    statement.problem = why_not_stepped(options, optimizer);
  }
  if (statement.problem.empty() && has_gradient_hooks(options)) {
    statement.problem = why_not_hooked(sorted.trained);
  }
  const std::exception_ptr thrown = try_schedule(statement, options, context.size());
  std::vector<ChosenNumber> chosen = choose(statement, options, context.size());
  try {
    check_ranks_agree(context, options.call_name, statement);
  } catch (const InvalidArgument&) {
    if (thrown) {
      std::rethrow_exception(thrown);  // the others have been told
    }
    throw;
  }
  for (const ChosenNumber& number : chosen) {
    if (context.rank() == 0 && !number.reason.empty()) {
      context.log().info(fmt::format("{}: {} {}, {}", options.algorithm.text(), number.option,
                                     number.value, number.reason));
    }
  }
  return {.parameters = std::move(sorted), .bucket_bytes = sizes, .chosen = std::move(chosen)};
}

}  // namespace bluefog::optimizers
