// Puts and accumulates of windows in a code.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "ops/collectives.hpp"
#include "ops/compression.hpp"
#include "ops/window.hpp"
#include "tests/bodies/window_plans.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/ranks.hpp"

namespace bluefog::testing {
namespace {

using ops::Compression;
using ops::Window;
using ::testing::HasSubstr;

/// Rank r's tensor; powers of two, so that sums of codes are exact.
template <typename Element>
std::vector<Element> coded_values(int rank, std::size_t count) {
  std::vector<Element> values(count);
  for (std::size_t k = 0; k < count; ++k) {
    values[k] = static_cast<Element>((k % 7 == 0 ? 0.0 : 1.0) * (rank + 1) *
                                     std::ldexp(k % 2 == 0 ? 1.0 : -1.0, static_cast<int>(k % 5)));
  }
  return values;
}

template <typename Element>
std::vector<float> decoded_by(const Compression& compression, const std::vector<Element>& values) {
  std::vector<float> decoded(values.begin(), values.end());
  std::vector<std::byte> code(compression.bytes_of(decoded.size()));
  compression.encode(decoded, code);
  compression.decode(code, decoded);
  return decoded;
}

template <typename Element>
BufferView view_of_elements(std::vector<Element>& values) {
  return {.data = values.data(),
          .count = static_cast<std::int64_t>(values.size()),
          .dtype = std::is_same_v<Element, double> ? Dtype::Float64 : Dtype::Float32};
}

/// The only source's buffer.
template <typename Element>
std::vector<Element> buffer_of(Window& window, int source, std::size_t count) {
  std::vector<Element> found(count);
  window.update({.weights = {{.self_weight = 0.0, .sources = {{.rank = source}}}},
                 .output = view_of_elements(found)});
  return found;
}

template <typename Element>
void expect_codes(Context& context, const std::string& name, std::size_t count) {
  const auto compression = ops::compression_named(name);
  const NeighborPlan plan =
      topology::ring(context.size(), topology::RingStyle::Right).plan_for(context.rank());
  const int source = plan.sources.front().rank;
  std::vector<Element> value = coded_values<Element>(context.rank(), count);
  const auto window = Window::create(context, view_of_elements(value), plan,
                                     {.name = name, .fill = ops::WindowFill::Zeros});
  const std::vector<Element> theirs = coded_values<Element>(source, count);
  const std::vector<float> coded = decoded_by(*compression, theirs);
  window->put(view_of_elements(value), {.compression = compression});
  ops::barrier(context);
  const auto put = buffer_of<Element>(*window, source, count);
  for (std::size_t k = 0; k < count; ++k) {
    EXPECT_EQ(put[k], static_cast<Element>(coded[k])) << name << " " << k;
  }
  ops::barrier(context);
  // Twice, with a weight; what is scaled is the tensor, not its code.
  auto options =
      ops::WindowPutOptions{.destinations = plan.destinations, .compression = compression};
  options.destinations->front().weight = 0.5;
  window->put(view_of_elements(value), options);
  options.self_weight = 0.25;
  window->accumulate_nonblocking(view_of_elements(value), options).wait();
  ops::barrier(context);
  const auto both = buffer_of<Element>(*window, source, count);
  const std::vector<Element> before = coded_values<Element>(context.rank(), count);
  for (std::size_t k = 0; k < count; ++k) {
    EXPECT_EQ(both[k], static_cast<Element>(coded[k])) << name << " " << k;
    EXPECT_EQ(value[k], before[k] * static_cast<Element>(0.25));
  }
  ops::barrier(context);
  window->free();
}

TEST(WindowCodes, ComeAsTheCodeHasThem) {
  on_ranks({.at_least = 2}, [](Context& context) {
    for (const std::string name : {"bfloat16", "float16", "int8", "int4", "sign", "topk:600"}) {
      for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{5000}}) {
        expect_codes<float>(context, name, count);
        expect_codes<double>(context, name, count);
      }
    }
  });
}

TEST(WindowCodes, OfWhatIsNotFiniteAreNotFinite) {
  on_ranks({.at_least = 2}, [](Context& context) {
    const NeighborPlan plan = ring_plan(context);
    std::vector<float> value(300, std::nanf(""));
    const auto window = Window::create(context, view_of_elements(value), plan);
    window->put(view_of_elements(value), {.compression = ops::compression_named("int8")});
    ops::barrier(context);
    for (const float found : buffer_of<float>(*window, plan.sources.front().rank, 300)) {
      EXPECT_TRUE(std::isnan(found));
    }
    ops::barrier(context);
    window->free();
  });
}

/// A code that other ranks do not know, whatever it calls itself.
class Unheard final : public Compression {
 public:
  explicit Unheard(std::string name) : name_(std::move(name)) {}
  [[nodiscard]] std::string name() const override { return name_; }
  [[nodiscard]] std::size_t bytes_of(std::size_t count) const override { return count; }
  [[nodiscard]] double contraction(std::size_t /*count*/) const override { return 1; }
  void encode(std::span<const float> /*values*/, std::span<std::byte> /*code*/) const override {}
  void decode(std::span<const std::byte> /*code*/, std::span<float> /*values*/) const override {}

 private:
  std::string name_;
};

TEST(WindowCodes, ThatCannotBeArePutByNobody) {
  on_ranks({.at_least = 2}, [](Context& context) {
    const NeighborPlan plan = ring_plan(context);
    std::vector<double> value(3, 1e300);
    const auto window = Window::create(context, view_of_elements(value), plan, {.name = "w"});
    EXPECT_THAT(error_of<InvalidArgument>([&] {
                  window->put(view_of_elements(value),
                              {.compression = ops::compression_named("int8")});
                }),
                HasSubstr("expected values within float32, which codes are of, found 1e+300"));
    for (const std::string name : {"unheard", "int8"}) {
      EXPECT_THAT(error_of<InvalidArgument>([&] {
                    window->accumulate(view_of_elements(value),
                                       {.compression = std::make_shared<const Unheard>(name)});
                  }),
                  HasSubstr("which the owner of a buffer knows by its name, found '" + name +
                            "' of this program"));
    }
    for (const auto& [source, version] : window->versions()) {
      EXPECT_EQ(version, 0);
    }
    std::vector<std::uint16_t> shorter(3);
    const BufferView halves{.data = shorter.data(), .count = 3, .dtype = Dtype::BFloat16};
    const auto of_halves = Window::create(context, halves, plan, {.name = "halves"});
    EXPECT_THAT(error_of<UnsupportedError>([&] {
                  of_halves->put(halves, {.compression = ops::compression_named("int8")});
                }),
                HasSubstr("compression int8: expected a window of float32 or float64, found"));
    ops::barrier(context);
    window->free();
    of_halves->free();
  });
}

}  // namespace
}  // namespace bluefog::testing
