#include "tests/support/gpu/device_ranks.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <thread>
#include <utility>

#include "bluefog_cpp/context/context_core.hpp"
#include "bluefog_cpp/device/device_channel.hpp"
#include "bluefog_cpp/thread_bootstrap.hpp"
#include "tests/support/gpu/cuda_process.hpp"

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
  cuda.enter(own.core().device()->device());
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
  cuda.enqueue(
      on, "upload", {{.memory = memory, .bytes = bytes, .writes = true}},
      [memory, from = std::move(values)]() mutable { std::ranges::copy(from.bytes(), memory); });
  view.data = memory;
  view.device = {.kind = DeviceKind::Cuda, .index = context.core().device()->device()};
  view.stream = on;
  return view;
}

Values DeviceRank::download(const BufferView& view) {
  Values values(view.dtype, static_cast<std::size_t>(view.count));
  cuda.enqueue(view.stream, "download",
               {{.memory = view.data, .bytes = view.bytes(), .writes = false}}, [&] {
                 std::copy_n(static_cast<const std::byte*>(view.data), view.bytes(),
                             values.bytes().data());
               });
  cuda.synchronize(view.stream);
  return values;
}

std::shared_ptr<CapturedGraph> DeviceRank::capture(const std::function<void()>& body,
                                                   gpu::CaptureMode mode) {
  meet(context);
  cuda.begin_capture(stream, mode);
  body();
  auto graph = cuda.end_capture(stream);
  meet(context);
  return graph;
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

namespace {

bool is_peer(Reach reach) { return reach == Reach::PeerProcesses || reach == Reach::PeerThreads; }

DeviceWayChoice choice_of(Reach reach) {
  switch (reach) {
    case Reach::Nccl:
      return DeviceWayChoice::Nccl;
    case Reach::Host:
      return DeviceWayChoice::Host;
    default:
      return DeviceWayChoice::Peer;
  }
}

gpu::Libraries libraries_of(Reach reach, int rank, const std::shared_ptr<CudaStandIn>& cuda,
                            const std::shared_ptr<NcclStandIn>& nccl) {
  gpu::Libraries libraries{.cuda = cuda};
  if (reach == Reach::Nccl) {
    libraries.nccl = nccl;
  } else if (reach == Reach::PeerProcesses) {
    libraries.cuda = std::make_shared<CudaProcess>(cuda, static_cast<std::uint64_t>(rank) + 1);
  }
  return libraries;
}

}  // namespace

void on_device_ranks(const DeviceRanks& ranks, const std::function<void(DeviceRank&)>& body) {
  for (const int size : thread_counts_of({.at_least = ranks.at_least, .at_most = ranks.at_most})) {
    for (Layout layout : ranks.layouts) {
      // Copies between devices serve one host: two halves of it stand for two.
      const bool splits_host = is_peer(ranks.reach) && layout == Layout::TwoHosts;
      if (splits_host && size % 2 != 0) {
        continue;
      }
      layout = splits_host ? Layout::OneHost : layout;
      const int share = ranks.ranks_per_device;
      const auto cuda = std::make_shared<CudaStandIn>((size + share - 1) / share);
      if (ranks.hosts_order) {
        cuda->let_hosts_order();
      }
      const auto nccl = std::make_shared<NcclStandIn>(cuda);
      auto bootstraps = make_thread_bootstraps(size);
      std::vector<std::jthread> threads;
      for (auto& bootstrap : bootstraps) {
        threads.emplace_back([&, own = std::move(bootstrap)]() mutable {
          const Ranks options{.settings =
                                  [&](Settings& settings, int /*rank*/) {
                                    settings.device_way = choice_of(ranks.reach);
                                    if (splits_host) {
                                      settings.nodes_per_machine = size / 2;
                                    }
                                    if (ranks.settings) {
                                      ranks.settings(settings);
                                    }
                                  },
                              .expect_usable = ranks.expect_usable};
          run_as_rank(std::move(own), options, layout, [&](Context& context) {
            const auto libraries = libraries_of(ranks.reach, context.rank(), cuda, nccl);
            context.core().use_device(context.rank() / share, &libraries);
            if (is_peer(ranks.reach)) {
              ASSERT_EQ(context.core().device()->way_of(OpKind::Allreduce), DeviceWay::Peer);
            }
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
