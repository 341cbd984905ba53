#include "examples/train_language/language_options.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>

#include "examples/common/option_words.hpp"
#include "tools/command_line/number_checks.hpp"

namespace bluefog::examples {
namespace {

using command_line::Bound;
using command_line::number;
using command_line::whole_number;

constexpr std::uint64_t kMany = 1 << 30;
constexpr double kLargest = 1e38;  // float32 soon knows infinity alone beyond it
constexpr double kLeastRate = 0.1;

void add_model(CLI::App& app, LanguageOptions& options) {
  app.add_option("--data", options.data, "Texts, or folders of them");
  app.add_option("--batch-size", options.batch_size, "Windows of a rank and step")
      ->check(whole_number(1, kMany));
  app.add_option("--length", options.length, "Bytes of a window")->check(whole_number(1, kMany));
  app.add_option("--width", options.width, "Of the model")->check(whole_number(1, kMany));
  app.add_option("--layers", options.layers, "Of the model")->check(whole_number(1, 10'000));
  app.add_option("--heads", options.heads, "They divide the width")->check(whole_number(1, kMany));
  app.add_option("--dtype", options.dtype, "Of products of matrices; parameters are float32")
      ->check(one_of(std::vector<std::string>{"float32", "bfloat16"}));
}

void add_steps(CLI::App& app, LanguageOptions& options) {
  app.add_option("--steps", options.steps, "Steps of each rank")->check(whole_number(1, kMany));
  app.add_option("--optimizer", options.optimizer, "Optimizer that each rank steps with")
      ->check(one_of(std::vector<std::string>{"adamw", "accum_adamw"}));
  app.add_option("--lr", options.learning_rate, "The rate after the warm-up")
      ->check(number({.at_low = Bound::Excluded, .high = kLargest}));
  app.add_option("--warmup-steps", options.warmup_steps,
                 "The rate rises in them; afterwards it falls by a cosine to a tenth")
      ->check(whole_number(0, kMany));
  app.add_option("--weight-decay", options.weight_decay, "Weight decay")
      ->check(number({.high = kLargest}));
  app.add_option("--clip", options.clip, "Largest norm of gradients")
      ->check(number({.at_low = Bound::Excluded, .high = kLargest}));
  app.add_option("--seed", options.seed, "Seed of the model and the windows")
      ->check(whole_number(0, std::numeric_limits<std::uint32_t>::max()));
}

void add_exchange(CLI::App& app, LanguageOptions& options, const LanguageNames& names) {
  app.add_option("--algorithm", options.algorithm, "How ranks combine their models")
      ->check(one_of(names.algorithms));
  app.add_option("--schedule", options.schedule,
                 "Who averages with whom, by name or as a file of lines 'i j [weight]'")
      ->check(one_of_or_edge_file(names.schedules));
  app.add_option("--local-steps", options.local_steps, "One step in so many communicates")
      ->check(whole_number(1, kMany));
  app.add_option("--compression", options.compression, "A code, of algorithms that take one");
  add_algorithm_option(app, options.algorithm_options, [&options, &names] {
    if (!options.compression.empty()) {
      options.algorithm_options.push_back("compression=" + options.compression);
    }
    return names.why_no_options ? names.why_no_options(options.algorithm_options, options.algorithm)
                                : std::string();
  });
}

void add_reports(CLI::App& app, LanguageOptions& options) {
  app.add_option("--report-every", options.report_every, "Steps between reports, and checkpoints")
      ->check(whole_number(1, kMany));
  auto* checkpoint =
      app.add_option("--checkpoint", options.checkpoint,
                     "Save the state with each report as FILE.rank0.pt, FILE.rank1.pt and so on");
  app.add_flag("--resume", options.resumes, "Go on from the state in the checkpoint files")
      ->needs(checkpoint);
}

}  // namespace

ParsedLanguageOptions parse_language_options(int argc, const char* const* argv,
                                             const LanguageNames& names) {
  ParsedLanguageOptions parsed;
  CLI::App app("Trains a small transformer to foretell the next byte of a text, on every rank.",
               "train_language");
  app.option_defaults()->always_capture_default();
  add_model(app, parsed.options);
  add_steps(app, parsed.options);
  add_exchange(app, parsed.options, names);
  add_reports(app, parsed.options);
  try {
    app.parse(argc, argv);
    if (parsed.options.width % parsed.options.heads != 0) {
      throw CLI::ValidationError("--heads",
                                 fmt::format("expected a divisor of the width, {}, "
                                             "found {}",
                                             parsed.options.width, parsed.options.heads));
    }
  } catch (const CLI::ParseError& error) {
    CommandLineEnd end = end_of(app, error);
    parsed.exit_code = end.exit_code;
    parsed.text = std::move(end.text);
  }
  return parsed;
}

double learning_rate_at(const LanguageOptions& options, std::int64_t step) {
  if (step < options.warmup_steps) {
    return options.learning_rate * static_cast<double>(step + 1) /
           static_cast<double>(options.warmup_steps);
  }
  const double way =
      static_cast<double>(step - options.warmup_steps) /
      static_cast<double>(std::max<std::int64_t>(1, options.steps - options.warmup_steps));
  return options.learning_rate *
         (kLeastRate + (1 - kLeastRate) * (1 + std::cos(std::numbers::pi * way)) / 2);
}

}  // namespace bluefog::examples
