#include "ops/window/window_setup.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <string>
#include <utility>

#include "bluefog_cpp/base/message_of.hpp"
#include "bluefog_cpp/context/context_core.hpp"
#include "bluefog_cpp/error.hpp"
#include "ops/calls/allgather_parts.hpp"
#include "ops/calls/validation.hpp"
#include "ops/collectives.hpp"
#include "ops/window/lock_site.hpp"
#include "ops/window/served_window.hpp"

namespace bluefog::ops {
namespace {

/// "rank 1: …" of the first rank that has an obstacle, or nothing.
std::string first_of(const std::vector<std::string>& obstacles) {
  for (std::size_t rank = 0; rank < obstacles.size(); ++rank) {
    if (!obstacles[rank].empty()) {
      return fmt::format("rank {}: {}", rank, obstacles[rank]);
    }
  }
  return {};
}

}  // namespace

void WindowSetup::open(WindowFill fill) {
  const Engine::LargerCall whole(window_.context().core().engine());
  try {
    agree_and_connect(fill);
  } catch (...) {
    // No rank has the window, so no rank uses the memory.
    buffers_.close();
    if (!may_be_open_) {
      buffers_.release();
    }
    if (own_.is_there()) {
      own_.release(window_.hub().memory());
    }
    throw;
  }
}

void WindowSetup::agree_and_connect(WindowFill fill) {
  // Every rank takes part, whatever is wrong with its own arguments.
  WindowRecord record{.name = window_.name()};
  std::exception_ptr refusal;
  try {
    record = describe();
  } catch (const std::exception&) {
    refusal = std::current_exception();
  }
  const auto records = exchange(record, refusal);
  // All ranks are here, and go on.
  OneSided& hub = window_.context().core().one_sided();
  window_.enter(hub);
  const bool may_share =
      hub.peer_obstacle().empty() && std::ranges::all_of(records, &WindowRecord::may_share_device);
  if (!may_share || !open_on_devices(record, fill)) {
    open_on_host(record, fill);
  }
}

WindowRecord WindowSetup::describe() const {
  constexpr OpKind kKind = OpKind::Window;
  const BufferView& tensor = window_.tensor();
  check_buffer(window_.context(), kKind, tensor, Residence::Anywhere);
  if (!is_floating(tensor.dtype)) {
    throw InvalidArgument(fmt::format(
        "{}: expected float16, bfloat16, float32 or float64, of which update makes averages, found "
        "{}; convert the values first (in Python tensor.float())",
        window_.where("win_create"), bluefog::name_of(tensor.dtype)));
  }
  check_plan(window_.context(), kKind, &window_.plan());
  return {.dtype = tensor.dtype,
          .count = tensor.count,
          .associated_weight = weight_ == AssociatedWeight::On,
          .own_value = window_.own_value(),
          .may_share_device = buffers_.may_be_used(),
          .sources = window_.sources(),
          .destinations = ranks_of(window_.plan().destinations),
          .name = window_.name()};
}

std::vector<WindowRecord> WindowSetup::exchange(WindowRecord own, std::exception_ptr refusal) {
  if (refusal) {
    own.error = message_of(refusal);
  }
  std::vector<WindowRecord> records;
  // A call like others, so that one who stalls or makes another call is named.
  const std::string& name = window_.name();
  const std::string call = name.empty() ? "win_create" : fmt::format("win_create '{}'", name);
  for (const auto& blob : allgather_parts(window_.context(), call, own.to_blob())) {
    records.push_back(WindowRecord::from_blob(blob));
  }
  // All know by now whether somebody refuses.
  may_be_open_ = false;
  if (refusal) {
    std::rethrow_exception(refusal);
  }
  check_records(records, window_.rank());
  may_be_open_ = buffers_.own() != nullptr;
  return records;
}

std::exception_ptr WindowSetup::attempt(const std::function<void()>& step) const {
  try {
    step();
  } catch (const CudaError&) {
    return std::current_exception();
  } catch (const TimeoutError&) {
    return std::current_exception();
  } catch (const std::exception& e) {
    return std::make_exception_ptr(
        Error(fmt::format("{}: {}", window_.where("win_create"), e.what())));
  }
  return nullptr;
}

void WindowSetup::allocate(WindowFill fill) {
  own_.allocate(window_.hub().memory(), window_.rank(),
                window_.shape_of(window_.sources().size(), window_.own_value()), buffers_.own());
  const auto initialize = [&](const std::byte* value, WindowValues* values) {
    own_.memory().initialize(fill == WindowFill::OwnValue ? value : nullptr,
                             window_.publishes() ? value : nullptr, values);
  };
  void* const data = window_.tensor().data;
  if (!window_.publishes()) {
    initialize(static_cast<const std::byte*>(data), nullptr);
    return;
  }
  window_.run("win_create", [&](WindowCall& call) {
    const auto tensors = tensors_.note_own(call.name(), {});
    WindowTensors::in_order(tensors.get(),
                            [&] { tensors_.on_values(call, data, tensors.get(), initialize); });
  });
}

void WindowSetup::open_on_host(WindowRecord record, WindowFill fill) {
  const auto refusal = attempt([&] {
    allocate(fill);
    record.place = own_.place();
    record.address = reinterpret_cast<std::uintptr_t>(window_.tensor().data);
  });
  connect(exchange(record, refusal));
}

bool WindowSetup::open_on_devices(WindowRecord record, WindowFill fill) {
  const auto refusal = attempt([&] {
    buffers_.make_room(record);
    if (buffers_.are_used()) {
      allocate(fill);
      record.place = own_.place();
    }
  });
  may_be_open_ = buffers_.own() != nullptr;
  const auto records = exchange(record, refusal);
  std::vector<std::string> obstacles;
  std::ranges::transform(records, std::back_inserter(obstacles), &WindowRecord::obstacle);
  std::string first = first_of(obstacles);
  if (first.empty()) {
    first = open_others(records);
    if (first.empty()) {
      connect(records);
      window_.context().log().debug(fmt::format(
          "{}: its buffers are in the memory of CUDA device {}, which the ranks open by CUDA IPC",
          window_.where("win_create"), window_.tensor().device.index));
      return true;
    }
    buffers_.close();
    barrier(window_.context());  // nobody has the memory open any more
  }
  leave_devices(first);
  return false;
}

std::string WindowSetup::open_others(const std::vector<WindowRecord>& records) {
  std::string own;
  try {
    buffers_.open(records);
  } catch (const CudaError& error) {
    own = error.what();
  }
  return first_of(
      allgather_parts(window_.context(), fmt::format("win_create '{}'", window_.name()), own));
}

void WindowSetup::leave_devices(const std::string& obstacle) {
  window_.hub().note_peer_obstacle(obstacle);
  if (window_.rank() == 0) {
    window_.context().log().info(
        fmt::format("windows keep their buffers on the host: not in device memory: {}", obstacle));
  }
  buffers_.release();
  own_.release(window_.hub().memory());
  buffers_.move_to_host();
}

void WindowSetup::connect(const std::vector<WindowRecord>& records) {
  const int own_rank = window_.rank();
  OneSided& hub = window_.hub();
  for (std::size_t r = 0; r < records.size(); ++r) {
    const WindowRecord& record = records[r];
    const int rank = static_cast<int>(r);
    WindowParts::Part part{.address = record.address,
                           .own_value = record.own_value,
                           .own_index = index_of(record.sources, own_rank)};
    if (hub.memory().reaches(rank)) {
      const auto shape = window_.shape_of(record.sources.size(), record.own_value);
      std::byte* const block =
          hub.memory().at(rank, record.place,
                          buffers_.are_used() ? WindowMemory::size_of_heads(shape)
                                              : WindowMemory::size_of_block(shape));
      part.memory = !buffers_.are_used() ? WindowMemory(block, shape)
                    : rank == own_rank   ? own_.memory()
                                         : WindowMemory(block, buffers_.of(r), shape);
    }
    ranks_.add(part);
  }
  if (WindowServer* const server = hub.server()) {
    const TakeLock take = [&window = std::as_const(window_)](shm::RobustLock& lock) {
      LockSite{.window = window, .rank = window.rank()}.take(lock);
    };
    server->add(window_.number(), std::make_shared<ServedWindow>(own_.memory(), window_.tensor(),
                                                                 window_.sources(), take));
  }
  // Nobody asks for what is not served yet.
  barrier(window_.context());
}

}  // namespace bluefog::ops
