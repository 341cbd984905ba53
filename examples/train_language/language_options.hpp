#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "examples/data/text_files.hpp"

namespace bluefog::examples {

/// The choices of a run of `train_language`; the initial values are the program's defaults.
struct LanguageOptions {
  std::vector<std::filesystem::path> data{kLicences};
  std::int64_t steps = 300;
  std::int64_t batch_size = 16;  ///< windows of a rank and step
  std::int64_t length = 64;      ///< bytes of a window
  std::int64_t width = 64;
  std::int64_t layers = 2;
  std::int64_t heads = 4;
  double learning_rate = 3e-3;  ///< after the warm-up
  std::int64_t warmup_steps = 20;
  double weight_decay = 0.1;
  double clip = 1.0;  ///< largest norm of gradients
  std::string dtype = "float32";
  std::string optimizer = "adamw";
  std::string algorithm = "adapt_then_combine";
  std::string schedule = "default";  ///< the algorithm's own
  std::int64_t local_steps = 1;
  std::string compression;                     ///< empty: as the algorithm has it
  std::vector<std::string> algorithm_options;  ///< NAME=VALUE each, that of `compression` too
  std::int64_t report_every = 50;
  std::uint64_t seed = 42;
  std::filesystem::path checkpoint;  ///< the files' common beginning; empty is none
  bool resumes = false;
};

/// The names that the command line takes, and what is wrong with options of an algorithm's own.
struct LanguageNames {
  std::vector<std::string> algorithms;
  std::vector<std::string> schedules;
  std::function<std::string(const std::vector<std::string>& words, const std::string& algorithm)>
      why_no_options{};
};

/// Options to run with, or text to print and an exit code.
struct ParsedLanguageOptions {
  LanguageOptions options;
  std::optional<int> exit_code;
  std::string text;
};

/// Reads the command line; prints nothing, so that one rank may speak for all.
[[nodiscard]] ParsedLanguageOptions parse_language_options(int argc, const char* const* argv,
                                                           const LanguageNames& names);

/// γ of a step: it rises evenly in the warm-up, and falls by a cosine to a tenth.
[[nodiscard]] double learning_rate_at(const LanguageOptions& options, std::int64_t step);

}  // namespace bluefog::examples
