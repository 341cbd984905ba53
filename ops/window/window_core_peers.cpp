// Windows whose buffers lie in device memory that the ranks of a host have opened: where that can
// be, and how calls work there.
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bluefog_cpp/base/message_of.hpp"
#include "bluefog_cpp/context/context_core.hpp"
#include "bluefog_cpp/device/device_channel.hpp"
#include "bluefog_cpp/device/peer_memory.hpp"
#include "bluefog_cpp/error.hpp"
#include "ops/calls/allgather_parts.hpp"
#include "ops/collectives.hpp"
#include "ops/sums/cuda/device_arithmetic.hpp"
#include "ops/window/window_core.hpp"

namespace bluefog::ops {
namespace {

/// CUDA_ERROR_OUT_OF_MEMORY.
constexpr int kOutOfMemory = 2;

}  // namespace

/// The values of one call, on the stream of the context's `PeerMemory`.
class WindowCore::PeerValues final : public WindowValues {
 public:
  PeerValues(WindowCore& core, WindowCall& call)
      : core_(core), call_(call), memory_(*core.peers_) {}

  void copy(std::byte* to, const std::byte* from, std::size_t bytes) override {
    if (bytes > 0 && to != from) {
      on_stream([&] { memory_.cuda().copy(to, from, bytes, memory_.stream()); });
    }
  }

  void weighted_sum(Dtype dtype, std::byte* out, std::span<const Operand> operands,
                    std::size_t bytes) override {
    on_stream([&] {
      cuda::launch_weighted_sum(memory_.cuda(), core_.sum_kernel_, dtype, out, operands, bytes,
                                memory_.stream());
    });
  }

  void zero(std::byte* data, std::size_t bytes) override {
    if (bytes > 0) {
      on_stream([&] { memory_.cuda().zero(data, bytes, memory_.stream()); });
    }
  }

  void settle() override {
    if (!has_work_) {
      return;
    }
    gpu::Event done = record();
    try {
      core_.wait_for_device(call_, DeviceWait::Work, [&] {
        const gpu::DeviceScope scope = memory_.enter();
        return memory_.cuda().has_happened(done.get());
      });
    } catch (const CudaError&) {
      throw;
    } catch (...) {  // nobody waits any more
      has_work_ = false;
      memory_.note_stuck(std::move(done));
      throw;
    }
    has_work_ = false;
  }

  void settle_quietly() noexcept override {
    try {
      settle();
    } catch (...) {  // NOLINT: the call's own error is on its way
    }
  }

 private:
  template <typename Function>
  void on_stream(const Function& function) {
    core_.placed(call_.name(), [&] {
      const gpu::DeviceScope scope = memory_.enter();
      has_work_ = true;
      function();
    });
  }

  gpu::Event record() {
    return core_.placed(call_.name(), [&] {
      const gpu::DeviceScope scope = memory_.enter();
      gpu::Event event = memory_.take_event();
      memory_.cuda().record(event.get(), memory_.stream());
      return event;
    });
  }

  WindowCore& core_;
  WindowCall& call_;
  PeerMemory& memory_;
  /// Something is on the stream that nobody has waited for.
  bool has_work_ = false;
};

void WindowCore::on_peers(WindowCall& call, DeviceTensors* tensors, std::byte* data,
                          const std::function<void(std::byte*, WindowValues*)>& body) {
  if (tensors != nullptr) {
    // Before a lock is taken: nobody else waits for what the caller's stream still has to do.
    wait_for_device(call, DeviceWait::Stream, [tensors] { return tensors->is_ready(); });
  }
  PeerValues values(*this, call);
  body(data, &values);
  values.settle();
}

// ---- life

bool WindowCore::may_share_device() const {
  const Settings& settings = context_->settings();
  const bool is_wanted = !settings.ops_on_cpu && !settings.win_on_cpu &&
                         !settings.win_ops_by_mpi && settings.transport != TransportChoice::Mpi &&
                         (settings.device_way == DeviceWayChoice::Auto ||
                          settings.device_way == DeviceWayChoice::Peer);
  return publishes() && is_wanted && context_->hosts().machine_count() == 1 &&
         sources_.size() < static_cast<std::size_t>(cuda::kMostSumOperands);
}

void WindowCore::make_room_on_device(WindowRecord& record) {
  const auto obstacle = [&](const std::string& text) {
    peers_ = nullptr;
    record.obstacle = text;
  };
  for (int rank = 0; rank < context_->size(); ++rank) {
    if (!hub_->memory().reaches(rank)) {
      return obstacle(fmt::format("it shares no memory with rank {}", rank));
    }
  }
  const auto shape = shape_of(sources_.size(), OwnValue::Published);
  try {
    peers_ = &hub_->make_peer_memory(*context_->core().device());
    {
      const gpu::DeviceScope scope = peers_->enter();
      sum_kernel_ = peers_->cuda().load(
          cuda::sum_kernels_image(), cuda::sum_kernel_name(cuda::SumRule::Weighted, tensor_.dtype));
    }
    block_ = peers_->allocate(WindowMemory::size_of_buffers(shape));
    record.block = peers_->show(*block_);
  } catch (const CudaError& error) {
    if (error.code() == kOutOfMemory) {
      throw CudaError(error.code(), fmt::format("{}: {}", where("win_create"), error.what()));
    }
    obstacle(error.what());
  } catch (const UnsupportedError& error) {
    obstacle(error.what());
  }
}

void WindowCore::open_peers(const std::vector<WindowRecord>& records) {
  for (std::size_t r = 0; r < records.size(); ++r) {
    const int rank = static_cast<int>(r);
    if (rank == context_->rank()) {
      opened_.push_back({});
      continue;
    }
    peers_->meet(rank, records[r].block);
    const bool is_neighbor =
        index_of(sources_, rank) < sources_.size() ||
        index_of(records[r].sources, context_->rank()) < records[r].sources.size();
    auto& opened = opened_.emplace_back();
    if (is_neighbor) {
      opened.buffers = peers_->open(rank, records[r].block);
      opened.block = records[r].block;
    }
  }
}

void WindowCore::close_peers() noexcept {
  for (std::size_t rank = 0; rank < opened_.size(); ++rank) {
    if (opened_[rank].buffers == nullptr) {
      continue;
    }
    try {
      peers_->close(static_cast<int>(rank), opened_[rank].block);
    } catch (const Error& error) {
      context_->log().error(fmt::format("{}: {}", where("win_free"), error.what()));
    }
  }
  opened_.clear();
}

void WindowCore::release_block() noexcept {
  if (!block_) {
    return;
  }
  PeerMemory& memory = *hub_->peer_memory();
  const PeerMemory::Block block = *std::exchange(block_, std::nullopt);
  try {
    if (memory.is_idle()) {  // else it stays until the context's end
      memory.release(block);
    }
  } catch (const Error& error) {
    context_->log().error(fmt::format("{}: {}", where("win_free"), error.what()));
  }
}

bool WindowCore::open_on_devices(WindowRecord record, WindowFill fill) {
  const auto refusal = attempt([&] {
    make_room_on_device(record);
    if (peers_ != nullptr) {
      allocate(fill);
      record.place = *place_;
    }
  });
  may_be_open_ = block_.has_value();
  const auto records = exchange(record, refusal);
  const auto first_of = [](const std::vector<std::string>& obstacles) {
    for (std::size_t rank = 0; rank < obstacles.size(); ++rank) {
      if (!obstacles[rank].empty()) {
        return fmt::format("rank {}: {}", rank, obstacles[rank]);
      }
    }
    return std::string();
  };
  std::vector<std::string> obstacles;
  std::ranges::transform(records, std::back_inserter(obstacles), &WindowRecord::obstacle);
  std::string first = first_of(obstacles);
  if (first.empty()) {
    std::string own;
    try {
      open_peers(records);
    } catch (const CudaError& error) {
      own = error.what();
    }
    first = first_of(allgather_parts(*context_, fmt::format("win_create '{}'", name_), own));
    if (first.empty()) {
      connect(records);
      context_->log().debug(fmt::format(
          "{}: its buffers are in the memory of CUDA device {}, which the ranks open by CUDA IPC",
          where("win_create"), tensor_.device.index));
      return true;
    }
    close_peers();
    barrier(*context_);  // nobody has the memory open any more
  }
  hub_->note_peer_obstacle(first);
  if (context_->rank() == 0) {
    context_->log().info(
        fmt::format("windows keep their buffers on the host: not in device memory: {}", first));
  }
  release_block();
  if (place_) {
    hub_->memory().release(*std::exchange(place_, std::nullopt));
  }
  own_.reset();
  peers_ = nullptr;
  return false;
}

}  // namespace bluefog::ops
