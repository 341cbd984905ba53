// The last rank is killed while a call on GPUs that all have made waits for its device: the others
// must hear of it in time, make no more calls on devices, and end by themselves. Prints a line for
// each survivor. Exit code 77 if it cannot run.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>

#include "bluefog_cpp/error.hpp"
#include "ops/collectives.hpp"
#include "tests/cuda/gpu.hpp"

namespace {

using namespace bluefog;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr int kSkipped = 77;
constexpr auto kTimeout = 10s;

/// The other ranks have launched their part by then, or wait on the host.
[[noreturn]] void die_in_a_call(Context& context, testing::Gpu& gpu, const BufferView& buffer) {
  gpu.shut(gpu.stream());
  const Work work = ops::allreduce_nonblocking(context, buffer);
  const auto begin = Clock::now();
  while (!work.done() && Clock::now() - begin < 2s) {
    std::this_thread::sleep_for(1ms);
  }
  std::this_thread::sleep_for(200ms);
  std::raise(SIGKILL);
  std::abort();
}

/// The error that `call` ends with.
template <typename Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const PeerFailure& error) {
    return error.what();
  } catch (const TimeoutError& error) {
    return error.what();
  } catch (const StateError& error) {
    return error.what();
  }
  return {};
}

}  // namespace

int main() {
  try {
    Settings settings = Settings::from_environment();
    settings.timeout = kTimeout;
    auto context = Context::create(settings);
    const std::string obstacle = !testing::why_no_gpu().empty() ? testing::why_no_gpu()
                                 : context->size() < 2          ? "needs 2 ranks or more"
                                                                : testing::Gpu::why_not_shut();
    if (!obstacle.empty()) {
      std::fprintf(stderr, "SKIPPED: %s\n", obstacle.c_str());
      return kSkipped;
    }
    const int rank = context->rank();
    // The GPU is never freed: its streams may wait for a device that is gone.
    auto& gpu = *new testing::Gpu(rank);
    context->use_device(gpu.device());
    const BufferView buffer = gpu.upload(testing::thirds(Dtype::Float32, 100'000, rank));
    ops::allreduce(*context, buffer);  // connects the ranks
    gpu.synchronize();
    ops::barrier(*context);
    if (rank == context->size() - 1) {
      die_in_a_call(*context, gpu, buffer);
    }
    const auto begin = Clock::now();
    const std::string first = error_of([&] {
      const Work work = ops::allreduce_nonblocking(*context, buffer);
      work.wait();
      work.synchronize();
    });
    const std::string second = error_of([&] { ops::allreduce(*context, buffer); });
    context.reset();
    const auto seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    if (first.empty() || second.empty() ||
        seconds > 3 * std::chrono::duration<double>(kTimeout).count()) {
      std::fprintf(stderr,
                   "rank %d: expected errors within 30 s, found '%s' and '%s' after %.1f s\n", rank,
                   first.c_str(), second.c_str(), seconds);
      return 1;
    }
    std::printf("survivor %d heard of it and ended after %.1f s: %s\n", rank, seconds,
                first.c_str());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cuda_killed_rank: %s\n", error.what());
    return 1;
  }
  return 0;
}
