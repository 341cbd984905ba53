// Codes of ops/compression.hpp on one core, beside a memcpy of the values.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "ops/compression.hpp"

namespace {

using bluefog::ops::Compression;

struct Options {
  std::size_t values = std::size_t{1} << 20U;
  int repeats = 25;
  std::vector<std::string> names = bluefog::ops::compression_names();
};

/// GB/s of float32, the median.
double rate_of(const Options& options, const std::function<void()>& work) {
  std::vector<double> seconds;
  for (int i = 0; i < options.repeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    work();
    seconds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  return static_cast<double>(options.values * sizeof(float)) / *middle / 1e9;
}

void measure(const Options& options) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(options.values);
  std::ranges::generate(values, [&] { return normal(random); });
  std::vector<float> copy(values.size());
  fmt::print("{} float32 values, one core, medians of {}; GB/s of float32\n", options.values,
             options.repeats);
  fmt::print("{:<12}{:>10}{:>10}{:>14}\n", "code", "encode", "decode", "bytes/value");
  fmt::print(
      "{:<12}{:>10.1f}{:>10}{:>14.3f}\n", "memcpy",
      rate_of(options,
              [&] { std::memcpy(copy.data(), values.data(), values.size() * sizeof(float)); }),
      "", 4.0);
  for (const std::string& name : options.names) {
    const auto compression = bluefog::ops::compression_named(name);
    std::vector<std::byte> code(compression->bytes_of(values.size()));
    const double encoding = rate_of(options, [&] { compression->encode(values, code); });
    const double decoding = rate_of(options, [&] { compression->decode(code, copy); });
    fmt::print("{:<12}{:>10.1f}{:>10.1f}{:>14.3f}\n", compression->name(), encoding, decoding,
               static_cast<double>(code.size()) / static_cast<double>(values.size()));
  }
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app{"How fast codes are made and read on one core."};
  app.add_option("--values", options.values, "float32 values")->check(CLI::PositiveNumber);
  app.add_option("--repeats", options.repeats, "of each, whose median counts")
      ->check(CLI::PositiveNumber);
  app.add_option("names", options.names, "codes; all of them if left out");
  CLI11_PARSE(app, argc, argv);
  try {
    measure(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "compression_benchmark: {}\n", error.what());
    return 2;
  }
  return 0;
}
