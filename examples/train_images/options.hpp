#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "examples/data/load.hpp"

namespace bluefog::examples {

enum class ShardKind { Iid, Dirichlet };
enum class ProgressKind { Auto, Live, Lines, Off };

/// The choices of a run of `train_images`; the initial values are the program's defaults.
struct TrainOptions {
  std::string model = "cnn";
  std::string algorithm = "atc";
  std::vector<std::string> algorithm_options;  ///< NAME=VALUE each
  std::string topology = "default";            ///< the algorithm's own
  std::string optimizer = "sgd";
  std::string buffers = "average";  ///< what happens to batch-norm statistics
  std::int64_t batch_size = 64;     ///< images per rank and step
  std::int64_t epochs = 3;
  std::int64_t max_batches = 0;      ///< steps per epoch at most; 0 is a whole pass over the data
  std::int64_t max_test_images = 0;  ///< 0 is all
  std::int64_t local_steps = 1;      ///< one step in so many communicates
  double learning_rate = 0.05;
  double momentum = 0.9;
  double weight_decay = 0.0;
  std::uint64_t seed = 1;
  ShardKind shards = ShardKind::Iid;
  double alpha = 0.5;
  bool augments = false;
  std::filesystem::path data = kDefaultDataFolder;
  std::filesystem::path checkpoint;  ///< the files' common beginning; empty is none
  bool resumes = false;
  std::filesystem::path metrics;  ///< empty is none
  int threads = 0;                ///< per rank; 0 leaves it to the launcher
  ProgressKind progress = ProgressKind::Auto;
};

/// The command line's names, in the order in which help lists them, and what goes by them.
struct OptionNames {
  std::vector<std::string> models;
  std::vector<std::string> algorithms;
  std::vector<std::string> topologies;
  std::vector<std::string> optimizers;
  std::vector<std::string> buffer_policies;
  /// Why an algorithm cannot have options that are given as words NAME=VALUE; empty where it can.
  std::function<std::string(const std::vector<std::string>& words, const std::string& algorithm)>
      why_no_options{};
};

/// The result of `parse_train_options`: options to run with, or text to print and an exit code.
struct ParsedOptions {
  TrainOptions options;
  std::optional<int> exit_code;  ///< set if the program should print `text` and leave
  std::string text;              ///< the help (code 0), or what is wrong and how to get help
};

/// Reads the command line; prints nothing and does not leave the program, so that one rank may
/// speak for all. Values out of range and names that `names` does not list are errors.
[[nodiscard]] ParsedOptions parse_train_options(int argc, const char* const* argv,
                                                const OptionNames& names);

/// The options as they appear in the metrics file's first line.
[[nodiscard]] std::string to_string(ShardKind kind);

}  // namespace bluefog::examples
