// Failures of calls of windows of tensors on a device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "ops/collectives.hpp"
#include "ops/window.hpp"
#include "tests/fabric/device/bodies.hpp"
#include "tests/fabric/device/windows.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/gpu/device_ranks.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::testing {
namespace {

using ops::Window;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// Windows like those of device_window_test.cpp.
class DeviceWindowErrors : public ::testing::TestWithParam<Reach> {
 protected:
  [[nodiscard]] static bool is_on_host() { return GetParam() == Reach::Host; }
  static DeviceRanks two_or_three() {
    return {.at_least = 2, .at_most = 3, .reach = GetParam(), .hosts_order = !is_on_host()};
  }
};
INSTANTIATE_TEST_SUITE_P(Buffers, DeviceWindowErrors,
                         ::testing::Values(Reach::Host, Reach::PeerProcesses, Reach::PeerThreads),
                         link_name);

/// "rank 1, window 'w', win_put".
std::string place(const DeviceRank& rank, const std::string& call) {
  return "rank " + std::to_string(rank.context.rank()) + ", window 'w', " + call;
}

/// The window does what it should.
void expect_window_usable(DeviceRank& rank, Window& window, const BufferView& tensor,
                          const Values& value) {
  ops::barrier(rank.context);
  window.fill(ops::WindowFill::Zeros);
  window.update({.weights = {{.self_weight = 1.0, .sources = window.plan().sources}}});
  EXPECT_EQ(rank.download(tensor), value);
  ops::barrier(rank.context);
}

TEST_P(DeviceWindowErrors, TensorsElsewhere) {
  on_device_ranks(two_or_three(), [](DeviceRank& rank) {
    const std::string own = "CUDA device " + std::to_string(rank.context.rank());
    const Values value = small_integers(Dtype::Float32, 4, rank.context.rank());
    Values on_cpu = value;
    const BufferView tensor = rank.upload(value);
    const auto window = window_of(rank, tensor);
    BufferView elsewhere = tensor;
    elsewhere.device.index += 5;
    const std::string there = "CUDA device " + std::to_string(elsewhere.device.index);
    EXPECT_THAT(error_of<InvalidArgument>([&] { window->put(elsewhere); }),
                AllOf(StartsWith(place(rank, "win_put")),
                      HasSubstr("expected a tensor on " + own + ", as the window's"),
                      HasSubstr("found one on " + there)));
    EXPECT_THAT(
        error_of<InvalidArgument>([&] { (void)window->accumulate_nonblocking(on_cpu.view()); }),
        AllOf(StartsWith(place(rank, "win_accumulate")), HasSubstr("found one on the CPU")));
    EXPECT_THAT(error_of<InvalidArgument>([&] { window->update({.output = on_cpu.view()}); }),
                AllOf(StartsWith(place(rank, "win_update")), HasSubstr("found one on the CPU")));
    BufferView shorter = tensor;
    shorter.count = 3;
    EXPECT_THAT(error_of<InvalidArgument>([&] { window->put(shorter); }),
                HasSubstr("expected a tensor like the window's, float32[4], found float32[3]"));
    BufferView part = tensor;
    part.data = static_cast<std::byte*>(tensor.data) + 4;
    EXPECT_THAT(error_of<InvalidArgument>([&] { window->update({.output = part}); }),
                HasSubstr("overlapping"));
    expect_window_usable(rank, *window, tensor, value);
    window->free();
    EXPECT_THAT(error_of<StateError>([&] { window->put(tensor); }),
                HasSubstr("win_put: the window has been freed"));
    EXPECT_THROW(window->publish(), StateError);

    const auto window_on_cpu = window_of(rank, on_cpu.view());
    EXPECT_THAT(error_of<InvalidArgument>([&] { window_on_cpu->put(tensor); }),
                HasSubstr("expected a tensor on the CPU, as the window's, found one on " + own));
    window_on_cpu->free();
  });
}

TEST_P(DeviceWindowErrors, CreateWithATensorElsewhere) {
  on_device_ranks(two_or_three(), [](DeviceRank& rank) {
    BufferView tensor = rank.upload(small_integers(Dtype::Float32, 4, 0));
    if (rank.context.rank() == 1) {
      tensor.device.index = 7;
      EXPECT_THAT(error_of<InvalidArgument>([&] { (void)window_of(rank, tensor); }),
                  HasSubstr("rank 1, win_create: expected a buffer on the CPU or on CUDA device 1 "
                            "(Context::use_device), found one on CUDA device 7"));
    } else {
      EXPECT_THAT(error_of<PeerFailure>([&] { (void)window_of(rank, tensor); }),
                  HasSubstr("rank 1 refused it"));
    }
    meet(rank.context);
    const BufferView integers = rank.upload(small_integers(Dtype::Int32, 4, 0));
    EXPECT_THAT(error_of<InvalidArgument>([&] { (void)window_of(rank, integers); }),
                HasSubstr("float16, bfloat16, float32 or float64"));
    meet(rank.context);
    expect_device_usable(rank);
  });
}

/// A copy that fails ends the call, and the next one works.
TEST_P(DeviceWindowErrors, CopiesThatFail) {
  on_device_ranks(two_or_three(), [](DeviceRank& rank) {
    const int own = rank.context.rank();
    const Values value = small_integers(Dtype::Float32, 4, own);
    const BufferView tensor = rank.upload(value);
    const auto window = window_of(rank, tensor);
    const std::vector<std::string> everywhere{"win_put", "win_get", "win_update", "win_publish",
                                              "win_accumulate"};
    // It fails before the tensor is written.
    const std::map<std::string, std::vector<std::string>> calls{
        {"cuEventRecord", everywhere},
        {"cuEventQuery", everywhere},
        {"cuMemcpyAsync", is_on_host() ? everywhere
                                       : std::vector<std::string>{"win_put", "win_get",
                                                                  "win_publish", "win_accumulate"}},
        {"cuLaunchKernel",
         is_on_host() ? std::vector<std::string>{}
                      : std::vector<std::string>{"win_put", "win_update", "win_accumulate"}}};
    const std::map<std::string, std::function<void()>> bodies{
        {"win_put", [&] { window->put(tensor, {.self_weight = 2.0}); }},
        {"win_get", [&] { window->get(); }},
        {"win_update", [&] { window->update(); }},
        {"win_publish", [&] { window->publish(); }},
        {"win_accumulate", [&] { window->accumulate_nonblocking(tensor).wait(); }}};
    for (const auto& [call, windows_calls] : calls) {
      rank.cuda.synchronize(rank.stream);
      for (const std::string& name : windows_calls) {
        rank.cuda.fail_next(call, own, 700);
        EXPECT_THAT(error_of<CudaError>(bodies.at(name)),
                    AllOf(StartsWith(place(rank, name)), HasSubstr("an injected error")))
            << call;
        rank.cuda.fail_next(call, own, 0);
      }
      expect_window_usable(rank, *window, tensor, value);
    }
    window->free();
  });
}

TEST_P(DeviceWindowErrors, CreateWhoseCopyFails) {
  on_device_ranks(two_or_three(), [](DeviceRank& rank) {
    const BufferView tensor = rank.upload(small_integers(Dtype::Float32, 4, 0));
    if (rank.context.rank() == 0) {
      rank.cuda.fail_next("cuMemcpyAsync", 0, 700);
      EXPECT_THAT(error_of<CudaError>([&] { (void)window_of(rank, tensor); }),
                  AllOf(StartsWith(place(rank, "win_create")), HasSubstr("an injected error")));
    } else {
      EXPECT_THAT(error_of<PeerFailure>([&] { (void)window_of(rank, tensor); }),
                  AllOf(HasSubstr("rank 0 refused it"), HasSubstr("an injected error")));
    }
    meet(rank.context);
    window_of(rank, tensor)->free();
  });
}

TEST_P(DeviceWindowErrors, ADeviceThatGivesNothing) {
  DeviceRanks ranks = two_or_three();
  ranks.at_most = 2;
  ranks.settings = [](Settings& settings) { settings.timeout = std::chrono::milliseconds(600); };
  on_device_ranks(ranks, [](DeviceRank& rank) {
    const Values value = small_integers(Dtype::Float32, 4, rank.context.rank());
    const BufferView tensor = rank.upload(value);
    const auto window = window_of(rank, tensor);
    if (rank.context.rank() == 1) {
      rank.shut(rank.stream);
      EXPECT_THAT(error_of<TimeoutError>([&] { window->put(tensor); }),
                  AllOf(StartsWith(place(rank, "win_put")),
                        HasSubstr(is_on_host()
                                      ? "the copy of the tensor between CUDA device 1 and the host "
                                        "was not done after 0.6 s (BLUEFOG_TIMEOUT)"
                                      : "what was on the tensor's stream of CUDA device 1 was not "
                                        "done after 0.6 s (BLUEFOG_TIMEOUT)")));
      rank.open();
      rank.cuda.synchronize(rank.stream);
    }
    meet(rank.context);
    expect_window_usable(rank, *window, tensor, value);
    window->free();
  });
}

}  // namespace
}  // namespace bluefog::testing
