// The smallest LibTorch program: it compiles, links and runs only where
// bluefog::torch names the right headers, libraries and C++ ABI.
#include <torch/types.h>

#include <cstdio>
#include <string>

int main() {
  const torch::Tensor sum = torch::ones({4}).sum();
  const std::string text = sum.toString();
  std::printf("%s %.0f\n", text.c_str(), sum.item<double>());
  return sum.item<double>() == 4.0 ? 0 : 1;
}
