// Trains a small transformer to foretell the next byte of a text, each rank on its share of it.
//
//   bfrun -np 4 train_language
//   bfrun -np 4 train_language --algorithm diloco --local-steps 20
//   bfrun -np 4 train_language --algorithm gossip_diloco --local-steps 20 --schedule ring
//     --compression int4
#include <iostream>

#include "examples/common/algorithm_options.hpp"
#include "examples/common/named_algorithm.hpp"
#include "examples/common/run_main.hpp"
#include "examples/train_language/language_options.hpp"
#include "examples/train_language/language_trainer.hpp"

namespace {

using namespace bluefog;            // NOLINT: a program, not a header
using namespace bluefog::examples;  // NOLINT

int run(Context& context, int argc, char** argv) {
  const ParsedLanguageOptions parsed = parse_language_options(
      argc, argv,
      {algorithm_names(), topology_names(), [](const auto& words, const std::string& algorithm) {
         return why_no_options(words, {algorithm});
       }});
  if (parsed.exit_code) {
    if (context.rank() == 0) {
      (*parsed.exit_code == 0 ? std::cout : std::cerr) << parsed.text << std::flush;
    }
    return *parsed.exit_code;
  }
  LanguageTrainer(context.shared_from_this(), parsed.options).run();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return run_main("train_language", [&](Context& context) { return run(context, argc, argv); });
}
