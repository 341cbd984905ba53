// Costs of calls on a GPU: the sum kernel's bandwidth beside a copy on the same device; the host's
// time to launch a small neighbor_allreduce beside ncclAllReduce on the same communicator's
// library; and a step of several beside a CUDA graph of the same. One JSON object; run under bfrun
// for several ranks.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "benchmarks/driver_graph.hpp"
#include "bluefog_cpp/context/context_core.hpp"
#include "bluefog_cpp/device/cuda/shared_object.hpp"
#include "bluefog_cpp/device/device_channel.hpp"
#include "bluefog_cpp/error.hpp"
#include "ops/collectives.hpp"
#include "ops/neighbor_allreduce.hpp"
#include "ops/sums/cuda/sum_kernels.hpp"
#include "ops/sums/cuda/sum_loop.hpp"
#include "topology/static_graphs.hpp"

namespace {

using namespace bluefog;
using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr unsigned kThreads = 256;
constexpr unsigned kMostBlocks = 8192;
/// Enumerators of nccl.h: float32, and a sum.
constexpr int kNcclFloat32 = 7;
constexpr int kNcclSum = 0;
/// Calls of a step whose launch is measured.
constexpr int kStepCalls = 10;
/// Repeats of which a bandwidth is the median.
constexpr int kRounds = 7;
/// The time until an idle GPU leaves its low clock.
constexpr Seconds kWarmUp{0.5};

struct Options {
  int device = -1;
  int rounds = 50;
  int launches = 200;
  std::size_t least_bytes = std::size_t{1} << 20U;
  std::size_t most_bytes = std::size_t{256} << 20U;
};

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// A device with one stream; memory lasts as long.
class Bench {
 public:
  explicit Bench(int device) : cuda_(gpu::load_cuda()), scope_(*cuda_, device) {
    stream_ = cuda_->make_stream();
    end_ = cuda_->make_event();
  }
  ~Bench() {
    for (void* const memory : allocated_) {
      cuda_->free(memory);
    }
    cuda_->free_event(end_);
    cuda_->free_stream(stream_);
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  [[nodiscard]] gpu::CudaApi& cuda() noexcept { return *cuda_; }
  [[nodiscard]] gpu::StreamHandle stream() const noexcept { return stream_; }
  [[nodiscard]] void* allocate(std::size_t bytes) {
    return allocated_.emplace_back(cuda_->allocate(bytes));
  }
  void synchronize() {
    cuda_->record(end_, stream_);
    while (!cuda_->has_happened(end_)) {
      std::this_thread::yield();
    }
  }
  /// Seconds for one of `rounds` calls that follow each other on the stream; each is given its
  /// number, and the first is not counted.
  template <typename Call>
  double seconds_of(std::size_t rounds, Call&& call) {
    call(std::size_t{0});
    synchronize();
    const auto begin = Clock::now();
    for (std::size_t i = 1; i <= rounds; ++i) {
      call(i);
    }
    synchronize();
    return Seconds(Clock::now() - begin).count() / static_cast<double>(rounds);
  }

 private:
  std::shared_ptr<gpu::CudaApi> cuda_;
  gpu::DeviceScope scope_;
  gpu::StreamHandle stream_ = nullptr;
  gpu::EventHandle end_ = nullptr;
  std::vector<void*> allocated_;
};

/// Buffers on a device that copies and sums go through from one end to the other, so that no round
/// is served from the cache, which may hold a copy's two operands and not the sum's four.
class Sweep {
 public:
  Sweep(Bench& bench, const Options& options) : bench_(bench), options_(options) {
    for (void*& buffer : buffers_) {
      buffer = bench.allocate(options.most_bytes);
    }
  }

  void warm_up() {
    for (const auto begin = Clock::now(); Clock::now() - begin < kWarmUp;) {
      copy_seconds(options_.most_bytes);
    }
  }
  double copy_seconds(std::size_t bytes) {
    return bench_.seconds_of(rounds_of(bytes), [&](std::size_t round) {
      bench_.cuda().copy(at(0, round, bytes), at(1, round, bytes), bytes, bench_.stream());
    });
  }
  double sum_seconds(std::size_t bytes, gpu::FunctionHandle kernel, Dtype dtype, int operands) {
    ops::cuda::SumArguments arguments{};
    arguments.count = static_cast<std::int64_t>(bytes / size_of(dtype));
    arguments.form = ops::cuda::SumForm::Average;
    arguments.operand_count = operands;
    const auto packs = static_cast<unsigned>(bytes / ops::cuda::kPackBytes);
    const gpu::Grid grid{.blocks = std::clamp((packs + kThreads - 1) / kThreads, 1U, kMostBlocks),
                         .threads = kThreads};
    return bench_.seconds_of(rounds_of(bytes), [&](std::size_t round) {
      arguments.out = at(0, round, bytes);
      for (int s = 0; s < operands; ++s) {
        arguments.operands[s] = {.data = at(static_cast<std::size_t>(s), round, bytes),
                                 .weight = 1.0 / operands};
      }
      bench_.cuda().launch(kernel, grid, std::as_bytes(std::span(&arguments, 1)), bench_.stream());
    });
  }

 private:
  static constexpr std::size_t kBuffers = 4;

  [[nodiscard]] std::size_t slots_of(std::size_t bytes) const {
    return options_.most_bytes / bytes;
  }
  /// Rounds enough to come through all of the buffers.
  [[nodiscard]] std::size_t rounds_of(std::size_t bytes) const {
    return std::max(static_cast<std::size_t>(options_.rounds), slots_of(bytes));
  }
  [[nodiscard]] void* at(std::size_t buffer, std::size_t round, std::size_t bytes) const {
    return static_cast<std::byte*>(buffers_[buffer]) + round % slots_of(bytes) * bytes;
  }

  Bench& bench_;
  const Options& options_;
  std::array<void*, kBuffers> buffers_{};
};

/// A sum whose bandwidth is measured, and the seconds of each round.
struct SumCase {
  Dtype dtype;
  int operands;
  gpu::FunctionHandle kernel;
  std::vector<double> seconds;
};

/// Bytes that are read and written, per second, and their share of a copy's.
nlohmann::json measure_combine(Bench& bench, const Options& options) {
  std::vector<SumCase> cases;
  for (const Dtype dtype : {Dtype::Float32, Dtype::Float16}) {
    const gpu::FunctionHandle kernel =
        bench.cuda().load(ops::cuda::sum_kernels_image(),
                          ops::cuda::sum_kernel_name(ops::cuda::SumRule::Weighted, dtype));
    for (const int operands : {2, 4}) {
      cases.push_back({.dtype = dtype, .operands = operands, .kernel = kernel, .seconds = {}});
    }
  }
  Sweep sweep(bench, options);
  sweep.warm_up();
  nlohmann::json rows = nlohmann::json::array();
  for (std::size_t bytes = options.least_bytes; bytes <= options.most_bytes; bytes *= 4) {
    std::vector<double> copies;
    for (int i = 0; i < kRounds; ++i) {  // by turns: the clock of all is the same
      copies.push_back(sweep.copy_seconds(bytes));
      for (SumCase& sum : cases) {
        sum.seconds.push_back(sweep.sum_seconds(bytes, sum.kernel, sum.dtype, sum.operands));
      }
    }
    const double copy_rate = static_cast<double>(bytes) * 2 / median(std::move(copies));
    for (SumCase& sum : cases) {
      const double sum_rate =
          static_cast<double>(bytes) * (sum.operands + 1) / median(std::exchange(sum.seconds, {}));
      rows.push_back({{"bytes", bytes},
                      {"dtype", name_of(sum.dtype)},
                      {"operands", sum.operands},
                      {"sum_bytes_per_second", sum_rate},
                      {"copy_bytes_per_second", copy_rate},
                      {"share_of_copy", sum_rate / copy_rate}});
    }
  }
  return rows;
}

/// ncclAllReduce, as the loaded library has it.
class NcclAllReduce {
 public:
  NcclAllReduce(Bootstrap& bootstrap, Deadline deadline) : nccl_(gpu::load_nccl()) {
    gpu::SharedObject("libnccl.so.2").bind(all_reduce_, "ncclAllReduce");
    gpu::NcclId id{};
    if (bootstrap.rank() == 0) {
      id = nccl_->make_id();
    }
    const auto ids = bootstrap.allgather(id, deadline);
    std::copy(ids.front().begin(), ids.front().end(), id.begin());
    comm_ = nccl_->init(bootstrap.size(), id, bootstrap.rank());
  }
  ~NcclAllReduce() { nccl_->destroy(comm_); }
  NcclAllReduce(const NcclAllReduce&) = delete;
  NcclAllReduce& operator=(const NcclAllReduce&) = delete;

  void operator()(void* data, std::size_t count, gpu::StreamHandle stream) {
    if (const int code = all_reduce_(data, data, count, kNcclFloat32, kNcclSum, comm_, stream);
        code != 0) {
      throw NcclError(code, "ncclAllReduce");
    }
  }

 private:
  std::shared_ptr<gpu::NcclApi> nccl_;
  int (*all_reduce_)(const void*, void*, std::size_t, int, int, void*, void*) = nullptr;
  gpu::CommHandle comm_ = nullptr;
};

/// Median seconds of the host in one call, with the device idle before.
template <typename Call>
double launch_seconds(Context& context, Bench& bench, int launches, Call&& call) {
  std::vector<double> times;
  for (int i = 0; i < launches; ++i) {
    bench.synchronize();
    ops::barrier(context);
    const auto begin = Clock::now();
    call();
    times.push_back(Seconds(Clock::now() - begin).count());
  }
  return median(std::move(times));
}

nlohmann::json measure_launches(Context& context, Bench& bench, const Options& options,
                                int device) {
  constexpr std::int64_t kCount = 256;
  const BufferView buffer{.data = bench.allocate(kCount * sizeof(float)),
                          .count = kCount,
                          .dtype = Dtype::Float32,
                          .device = {.kind = DeviceKind::Cuda, .index = device},
                          .stream = bench.stream(),
                          .owner = {}};
  const auto plan = std::make_shared<const NeighborPlan>(
      topology::exponential(context.size()).plan_for(context.rank()));
  const DeviceWay way = context.core().device()->way_of(OpKind::NeighborAllreduce);
  const bool is_nccl = way == DeviceWay::Nccl;
  nlohmann::json result{
      {"way", is_nccl                  ? "nccl"
              : way == DeviceWay::Peer ? "peer"
                                       : "host"},
      {"ranks", context.size()},
      {"bytes", buffer.bytes()},
      {"neighbor_allreduce_seconds", launch_seconds(context, bench, options.launches, [&] {
         ops::neighbor_allreduce(context, buffer, plan);
       })}};
  if (is_nccl) {
    NcclAllReduce all_reduce(context.core().bootstrap(),
                             Deadline::after(context.settings().timeout));
    const double seconds = launch_seconds(context, bench, options.launches, [&] {
      all_reduce(buffer.data, static_cast<std::size_t>(kCount), bench.stream());
    });
    result["nccl_all_reduce_seconds"] = seconds;
    result["ratio_to_nccl_all_reduce"] =
        result["neighbor_allreduce_seconds"].get<double>() / seconds;
    const auto step = [&] {
      for (int i = 0; i < kStepCalls; ++i) {
        ops::neighbor_allreduce(context, buffer, plan);
      }
    };
    result["step_calls"] = kStepCalls;
    result["step_seconds"] = launch_seconds(context, bench, options.launches, step);
    bench.synchronize();
    ops::barrier(context);
    DriverGraph graph(bench.stream(), step);
    result["captured_step_seconds"] =
        launch_seconds(context, bench, options.launches, [&] { graph.launch(bench.stream()); });
    bench.synchronize();
    ops::barrier(context);  // the graph ends when all have launched it
  }
  return result;
}

/// @throws UnsupportedError if there is no device: some drivers say so as they start.
int count_devices() {
  constexpr int kNoDevice = 100;  // CUDA_ERROR_NO_DEVICE
  int count = 0;
  try {
    count = gpu::load_cuda()->device_count();
  } catch (const UnsupportedError& error) {
    throw UnsupportedError(fmt::format("no driver of CUDA: {}", error.what()));
  } catch (const CudaError& error) {
    if (error.code() != kNoDevice) {
      throw;
    }
  }
  if (count == 0) {
    throw UnsupportedError("no CUDA device");
  }
  return count;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Bandwidth of sums and cost of launches on a GPU; prints one JSON object");
  app.add_option("--device", options.device, "default: the rank's place on its machine");
  app.add_option("--rounds", options.rounds)->check(CLI::Range(1, 100000));
  app.add_option("--launches", options.launches)->check(CLI::Range(1, 100000));
  CLI11_PARSE(app, argc, argv);
  try {
    const auto context = Context::create();
    const int count = count_devices();
    const int device = options.device >= 0 ? options.device : context->local_rank() % count;
    context->use_device(device);
    Bench bench(device);
    nlohmann::json result{{"launch", measure_launches(*context, bench, options, device)}};
    if (context->size() == 1) {
      result["combine"] = measure_combine(bench, options);
    }
    if (context->rank() == 0) {
      fmt::print("{}\n", result.dump());
    }
  } catch (const UnsupportedError& error) {
    fmt::print(stderr, "SKIPPED: {}\n", error.what());
    return 77;
  } catch (const std::exception& error) {
    fmt::print(stderr, "cuda_benchmark: {}\n", error.what());
    return 1;
  }
  return 0;
}
