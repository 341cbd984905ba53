#include "tests/support/gpu/device_ranks.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <thread>
#include <utility>

#include "bluefog_cpp/transport/thread_bootstrap.hpp"

namespace bluefog::testing {

struct DeviceRank::Gate {
  std::mutex mutex;
  std::condition_variable changed;
  bool is_open = true;
};

DeviceRank::DeviceRank(Context& own, std::shared_ptr<CudaStandIn> shared_cuda,
                       std::shared_ptr<NcclStandIn> shared_nccl)
    : context(own),
      cuda(*shared_cuda),
      nccl(*shared_nccl),
      cuda_(std::move(shared_cuda)),
      nccl_(std::move(shared_nccl)),
      gate_(std::make_shared<Gate>()) {
  cuda.enter(own.rank());
  stream = cuda.make_stream();
}

DeviceRank::~DeviceRank() {
  open();
  cuda.leave();
}

BufferView DeviceRank::upload(Values values, gpu::StreamHandle on, std::size_t shift) {
  BufferView view = values.view();
  const std::size_t bytes = values.bytes().size();
  auto* const memory = static_cast<std::byte*>(cuda.allocate(bytes + shift)) + shift;
  cuda.enqueue(on, "upload", {{.memory = memory, .bytes = bytes, .writes = true}},
               [memory, from = std::move(values)]() mutable {
                 std::ranges::copy(from.bytes(), memory);
               });
  view.data = memory;
  view.device = {.kind = DeviceKind::Cuda, .index = context.rank()};
  view.stream = on;
  return view;
}

Values DeviceRank::download(const BufferView& view) {
  Values values(view.dtype, static_cast<std::size_t>(view.count));
  cuda.enqueue(view.stream, "download",
               {{.memory = view.data, .bytes = view.bytes(), .writes = false}},
               [&] {
                 std::copy_n(static_cast<const std::byte*>(view.data), view.bytes(),
                             values.bytes().data());
               });
  cuda.synchronize(view.stream);
  return values;
}

CudaStandIn::Task DeviceRank::shut_gate() {
  {
    const std::scoped_lock lock(gate_->mutex);
    gate_->is_open = false;
  }
  return [gate = gate_] {
    std::unique_lock lock(gate->mutex);
    gate->changed.wait(lock, [&] { return gate->is_open; });
  };
}

void DeviceRank::shut(gpu::StreamHandle on) { cuda.enqueue(on, "gate", {}, shut_gate()); }

void DeviceRank::shut_after(gpu::StreamHandle on, int copies) {
  cuda.enqueue_after(on, copies, shut_gate());
}

void DeviceRank::open() {
  const std::scoped_lock lock(gate_->mutex);
  gate_->is_open = true;
  gate_->changed.notify_all();
}

void on_device_ranks(const DeviceRanks& ranks, const std::function<void(DeviceRank&)>& body) {
  for (const int size : {1, 2, 3, 4, 8}) {
    for (const Layout layout : ranks.layouts) {
      if (size < ranks.at_least || size > ranks.at_most) {
        continue;
      }
      const auto cuda = std::make_shared<CudaStandIn>(size);
      const auto nccl = std::make_shared<NcclStandIn>(cuda);
      const gpu::Libraries libraries{.cuda = cuda, .nccl = ranks.has_nccl ? nccl : nullptr};
      auto bootstraps = make_thread_bootstraps(size);
      std::vector<std::jthread> threads;
      for (auto& bootstrap : bootstraps) {
        threads.emplace_back([&, own = std::move(bootstrap)]() mutable {
          const Ranks options{.settings =
                                  [&](Settings& settings, int /*rank*/) {
                                    if (!ranks.has_nccl) {
                                      settings.log_level = LogLevel::Error;  // said each time
                                    }
                                    if (ranks.settings) {
                                      ranks.settings(settings);
                                    }
                                  },
                              .expect_usable = true};
          run_as_rank(std::move(own), options, layout, [&](Context& context) {
            context.use_device(context.rank(), &libraries);
            DeviceRank rank(context, cuda, nccl);
            body(rank);
          });
        });
      }
      threads.clear();
      for (const std::string& mistake : cuda->mistakes()) {
        EXPECT_TRUE(ranks.expect_mistakes) << describe(size, layout) << ": " << mistake;
      }
      if (::testing::Test::HasFailure()) {
        return;
      }
    }
  }
}

}  // namespace bluefog::testing
