// Trains an image classifier on every rank.
//
//   bfrun -np 2 train_images
//   bfrun -np 4 train_images --model resnet18 --data cifar-10-batches-bin --algorithm awc
//   bfrun -np 4 --min-np 2 --respawn 3 train_images     where ranks may be lost
#include <ATen/Parallel.h>

#include <iostream>

#include "examples/common/algorithm_options.hpp"
#include "examples/common/named_algorithm.hpp"
#include "examples/common/run_main.hpp"
#include "examples/models/image_model.hpp"
#include "examples/train_images/buffer_policies.hpp"
#include "examples/train_images/local_optimizer.hpp"
#include "examples/train_images/options.hpp"
#include "examples/train_images/trainer.hpp"

namespace {

using namespace bluefog;            // NOLINT: a program, not a header
using namespace bluefog::examples;  // NOLINT

int run(Context& context, int argc, char** argv) {
  const ParsedOptions parsed = parse_train_options(
      argc, argv,
      {model_names(), algorithm_names(), topology_names(), local_optimizer_names(),
       buffer_policy_names(), [](const auto& words, const std::string& algorithm) {
         return why_no_options(words, {algorithm});
       }});
  if (parsed.exit_code) {
    if (context.rank() == 0) {
      (*parsed.exit_code == 0 ? std::cout : std::cerr) << parsed.text << std::flush;
    }
    return *parsed.exit_code;
  }
  if (parsed.options.threads > 0) {
    at::set_num_threads(parsed.options.threads);
  }
  return Trainer(context.shared_from_this(), parsed.options).run();
}

}  // namespace

int main(int argc, char** argv) {
  return run_main("train_images", [&](Context& context) { return run(context, argc, argv); });
}
