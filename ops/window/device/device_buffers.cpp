#include "ops/window/device/device_buffers.hpp"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "bluefog_cpp/context/context_core.hpp"
#include "bluefog_cpp/device/device_channel.hpp"
#include "bluefog_cpp/error.hpp"
#include "ops/sums/cuda/device_arithmetic.hpp"

namespace bluefog::ops {
namespace {

/// CUDA_ERROR_OUT_OF_MEMORY.
constexpr int kOutOfMemory = 2;

}  // namespace

bool DeviceBuffers::may_be_used() const {
  const Settings& settings = window_.context().settings();
  const bool is_wanted = !settings.ops_on_cpu && !settings.win_on_cpu && !settings.win_ops_by_mpi &&
                         settings.transport != TransportChoice::Mpi &&
                         (settings.device_way == DeviceWayChoice::Auto ||
                          settings.device_way == DeviceWayChoice::Peer);
  return window_.publishes() && is_wanted && window_.context().hosts().machine_count() == 1 &&
         window_.sources().size() < static_cast<std::size_t>(cuda::kMostSumOperands);
}

void DeviceBuffers::make_room(WindowRecord& record) {
  const auto obstacle = [&](const std::string& text) {
    memory_ = nullptr;
    record.obstacle = text;
  };
  for (int rank = 0; rank < window_.context().size(); ++rank) {
    if (!window_.hub().memory().reaches(rank)) {
      return obstacle(fmt::format("it shares no memory with rank {}", rank));
    }
  }
  const auto shape = window_.shape_of(window_.sources().size(), OwnValue::Published);
  try {
    memory_ = &window_.hub().make_peer_memory(*window_.context().core().device());
    {
      const gpu::DeviceScope scope = memory_->enter();
      sum_kernel_ = memory_->cuda().load(
          cuda::sum_kernels_image(),
          cuda::sum_kernel_name(cuda::SumRule::Weighted, window_.tensor().dtype));
    }
    block_ = memory_->allocate(WindowMemory::size_of_buffers(shape));
    record.block = memory_->show(*block_);
  } catch (const CudaError& error) {
    if (error.code() == kOutOfMemory) {
      throw CudaError(error.code(),
                      fmt::format("{}: {}", window_.where("win_create"), error.what()));
    }
    obstacle(error.what());
  } catch (const UnsupportedError& error) {
    obstacle(error.what());
  }
}

void DeviceBuffers::open(const std::vector<WindowRecord>& records) {
  const auto& sources = window_.sources();
  for (std::size_t r = 0; r < records.size(); ++r) {
    const int rank = static_cast<int>(r);
    if (rank == window_.rank()) {
      opened_.push_back({});
      continue;
    }
    memory_->meet(rank, records[r].block);
    const bool is_neighbor =
        index_of(sources, rank) < sources.size() ||
        index_of(records[r].sources, window_.rank()) < records[r].sources.size();
    auto& opened = opened_.emplace_back();
    if (is_neighbor) {
      opened.buffers = memory_->open(rank, records[r].block);
      opened.block = records[r].block;
    }
  }
}

void DeviceBuffers::close() noexcept {
  for (std::size_t rank = 0; rank < opened_.size(); ++rank) {
    if (opened_[rank].buffers == nullptr) {
      continue;
    }
    try {
      memory_->close(static_cast<int>(rank), opened_[rank].block);
    } catch (const Error& error) {
      window_.context().log().error(fmt::format("{}: {}", window_.where("win_free"), error.what()));
    }
  }
  opened_.clear();
}

void DeviceBuffers::release() noexcept {
  if (!block_) {
    return;
  }
  PeerMemory& memory = *window_.hub().peer_memory();
  const PeerMemory::Block block = *std::exchange(block_, std::nullopt);
  try {
    if (memory.is_idle()) {  // else it stays until the context's end
      memory.release(block);
    }
  } catch (const Error& error) {
    window_.context().log().error(fmt::format("{}: {}", window_.where("win_free"), error.what()));
  }
}

}  // namespace bluefog::ops
