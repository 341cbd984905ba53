// Prints what local optimizers make of matrices, for the comparison with those of Python
// (optimizer_values_test.py): one JSON list of numbers after each step.
//
//   optimizer_values '[{"optimizer": "AccumAdam", "dtype": "float32", "steps": 3, "lr": 0.1,
//                       "weight_decay": 0, "accumulation": 2}]'
#include <torch/torch.h>

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "optimizers/accum_adam.hpp"
#include "optimizers/muon.hpp"

namespace {

using namespace bluefog::optimizers;  // NOLINT: a program, not a header

/// A wave over the elements, of one phase for each parameter and step; the same in Python.
at::Tensor wave(at::IntArrayRef shape, double phase, at::ScalarType dtype) {
  const std::int64_t count = c10::multiply_integers(shape);
  return (at::arange(count, at::kDouble) * 0.37 + phase).sin().view(shape).to(dtype);
}

at::ScalarType dtype_named(const std::string& name) {
  return name == "float64" ? at::kDouble : at::kFloat;
}

std::unique_ptr<torch::optim::Optimizer> make(const nlohmann::json& words,
                                              std::vector<at::Tensor> parameters) {
  const double lr = words.at("lr");
  const double decay = words.at("weight_decay");
  if (words.at("optimizer") == "Muon") {
    MuonOptions options(lr);
    options.weight_decay = decay;
    options.momentum = words.at("momentum");
    options.nesterov = words.at("nesterov");
    options.rate = words.at("matches_adamw") ? MuonRate::MatchRmsAdamW : MuonRate::Original;
    return std::make_unique<Muon>(std::move(parameters), options);
  }
  AccumAdamOptions options(lr);
  options.weight_decay = decay;
  options.betas = {0.9, 0.98};
  options.accumulation = words.at("accumulation");
  if (words.at("optimizer") == "AccumAdam") {
    return std::make_unique<AccumAdam>(std::move(parameters), options);
  }
  return std::make_unique<AccumAdamW>(std::move(parameters), options);
}

void print_values(const nlohmann::json& words) {
  const at::ScalarType dtype = dtype_named(words.at("dtype"));
  const std::vector<std::vector<std::int64_t>> shapes{{3, 5}, {6, 2}, {4, 4}};
  std::vector<at::Tensor> parameters;
  for (std::size_t p = 0; p < shapes.size(); ++p) {
    parameters.push_back(wave(shapes[p], static_cast<double>(p), dtype).requires_grad_());
  }
  const auto optimizer = make(words, parameters);
  for (int step = 0; step < words.at("steps"); ++step) {
    auto line = nlohmann::json::array();
    for (std::size_t p = 0; p < shapes.size(); ++p) {
      parameters[p].mutable_grad() =
          wave(shapes[p], 1.3 * static_cast<double>(p) + 0.71 * step, dtype);
    }
    optimizer->step();
    for (const at::Tensor& parameter : parameters) {
      const at::Tensor values = parameter.detach().to(at::kDouble).contiguous();
      for (std::int64_t i = 0; i < values.numel(); ++i) {
        line.push_back(values.data_ptr<double>()[i]);
      }
    }
    std::cout << line.dump() << '\n';
  }
}

}  // namespace

int main(int, char** argv) {
  for (const auto& words : nlohmann::json::parse(argv[1])) {
    print_values(words);
  }
  return std::cout.flush() ? 0 : 1;
}
