#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace bluefog::examples {

/// The YAML file of a pipeline's run, for `train_pipeline` and `pytorch_pipeline.py`; the initial
/// values are those of keys that a file leaves out.
struct PipelineConfiguration {
  std::string model = "vit";  ///< or bert
  std::int64_t stages = 0;    ///< of a pipeline at the start; 0: one a rank
  std::string schedule = "1f1b";
  std::string costs = "parameters";    ///< what stages are divided by; or time, measured at first
  std::int64_t micro_batches = 0;      ///< of a step; 0: chosen by the number of stages
  bool try_micro_batches = false;      ///< the fastest of some, tried where stages have changed
  std::string replicas = "gradients";  ///< what they average; or parameters
  bool freeze = true;                  ///< AutoFreeze
  bool by_gradients = true;            ///< the least gradient limits how deep to freeze
  double alpha = 1.0 / 3;              ///< the share of the unfrozen layers that freezes at a time
  bool repartition = true;             ///< AutoPipe: frozen layers count a sixth
  bool shrink = true;                  ///< AutoDP: fewer stages, more pipelines
  bool cache = false;                  ///< AutoCache: outputs of frozen layers are computed once
  std::int64_t cache_memory_mib = 256;
  std::int64_t cache_disk_mib = 1024;
  std::string cache_folder = "/tmp";
  std::int64_t epochs = 4;
  std::int64_t batch_size = 128;  ///< of all pipelines together
  double lr = 0.001;
  std::int64_t layers = 6;  ///< of the encoder
  std::int64_t width = 64;
  std::int64_t heads = 4;
  std::int64_t patch = 7;     ///< pixels of a patch's side
  std::int64_t tokens = 64;   ///< bytes of a window of text
  std::int64_t pause_us = 0;  ///< slept a row and half layer, in place of computing
  std::int64_t seed = 1;
};

/// @throws InvalidArgument for a file that cannot be read or is no YAML, for anything but names with
///   values, an unknown or repeated name, and a value of another type or out of its range, with the
///   file, the line, what was expected and what was found.
[[nodiscard]] PipelineConfiguration read_configuration(const std::filesystem::path& path);

}  // namespace bluefog::examples
