#include "ops/window/window_core.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "bluefog_cpp/base/message_of.hpp"
#include "bluefog_cpp/context/context_core.hpp"
#include "bluefog_cpp/error.hpp"
#include "ops/calls/allgather_parts.hpp"
#include "ops/calls/validation.hpp"
#include "ops/collectives.hpp"
#include "ops/window/served_window.hpp"

namespace bluefog::ops {

WindowCore::WindowCore(Context& context, BufferView tensor, const NeighborPlan& plan,
                       const WindowOptions& options)
    : context_(context.shared_from_this()),
      tensor_(std::move(tensor)),
      plan_(plan),
      name_(options.name),
      envelope_(Envelope::make(OpKind::Window, tensor_.dtype, tensor_.count, name_)),
      weight_state_(options.associated_weight),
      sources_(ranks_of(plan.sources)) {}

// ---- life

WindowRecord WindowCore::describe() const {
  constexpr OpKind kKind = OpKind::Window;
  check_buffer(*context_, kKind, tensor_, Residence::Anywhere);
  check_floating(*context_, kKind, tensor_.dtype);
  check_plan(*context_, kKind, &plan_);
  return {.dtype = tensor_.dtype,
          .count = tensor_.count,
          .associated_weight = counts_weight(),
          .own_value = publishes() ? OwnValue::Published : OwnValue::InTensor,
          .may_share_device = may_share_device(),
          .sources = sources_,
          .destinations = ranks_of(plan_.destinations),
          .name = name_};
}

void WindowCore::allocate(WindowFill fill) {
  const auto shape =
      shape_of(sources_.size(), publishes() ? OwnValue::Published : OwnValue::InTensor);
  place_ = hub_->memory().allocate(block_ ? WindowMemory::size_of_heads(shape)
                                          : WindowMemory::size_of_block(shape));
  std::byte* const heads = hub_->memory().base_of(context_->rank()) + *place_;
  own_ = block_ ? WindowMemory(heads, block_->data, shape) : WindowMemory(heads, shape);
  const auto initialize = [&](const std::byte* value, WindowValues* values) {
    own_->initialize(fill == WindowFill::OwnValue ? value : nullptr, publishes() ? value : nullptr,
                     values);
  };
  if (!publishes()) {
    initialize(static_cast<const std::byte*>(tensor_.data), nullptr);
    return;
  }
  run("win_create", [&](WindowCall& call) {
    const auto tensors = note_own(call.name(), {});
    in_order(tensors.get(),
             [&] { on_values(call, tensor_.data, tensors.get(), initialize); });
  });
}

WindowMemory::Shape WindowCore::shape_of(std::size_t sources, OwnValue own_value) const {
  return {.sources = sources,
          .own_value = own_value,
          .dtype = tensor_.dtype,
          .bytes = tensor_.bytes()};
}

std::vector<WindowRecord> WindowCore::exchange(WindowRecord own, std::exception_ptr refusal) {
  if (refusal) {
    own.error = message_of(refusal);
  }
  std::vector<WindowRecord> records;
  // A call like others, so that one who stalls or makes another call is named.
  const std::string call = name_.empty() ? "win_create" : fmt::format("win_create '{}'", name_);
  for (const auto& blob : allgather_parts(*context_, call, own.to_blob())) {
    records.push_back(WindowRecord::from_blob(blob));
  }
  // All know by now whether somebody refuses.
  may_be_open_ = false;
  if (refusal) {
    std::rethrow_exception(refusal);
  }
  check_records(records, context_->rank());
  may_be_open_ = block_.has_value();
  return records;
}

std::exception_ptr WindowCore::attempt(const std::function<void()>& step) const {
  try {
    step();
  } catch (const CudaError&) {
    return std::current_exception();
  } catch (const TimeoutError&) {
    return std::current_exception();
  } catch (const std::exception& e) {
    return std::make_exception_ptr(Error(fmt::format("{}: {}", where("win_create"), e.what())));
  }
  return nullptr;
}

void WindowCore::open_on_host(WindowRecord record, WindowFill fill) {
  const auto refusal = attempt([&] {
    allocate(fill);
    record.place = *place_;
    record.address = reinterpret_cast<std::uintptr_t>(tensor_.data);
  });
  connect(exchange(record, refusal));
}

void WindowCore::open(WindowFill fill) {
  const Engine::LargerCall whole(context_->core().engine());
  // Every rank takes part, whatever is wrong with its own arguments.
  WindowRecord record{.name = name_};
  std::exception_ptr refusal;
  try {
    record = describe();
  } catch (const std::exception&) {
    refusal = std::current_exception();
  }
  try {
    const auto records = exchange(record, refusal);
    // All ranks are here, and go on.
    hub_ = &context_->core().one_sided();
    number_ = hub_->take_window_number();
    const bool may_share =
        hub_->peer_obstacle().empty() &&
        std::ranges::all_of(records, &WindowRecord::may_share_device);
    if (!may_share || !open_on_devices(record, fill)) {
      open_on_host(record, fill);
    }
  } catch (...) {
    // No rank has the window, so no rank uses the memory.
    is_closed_ = true;
    close_peers();
    if (!may_be_open_) {
      release_block();
    }
    if (place_) {
      hub_->memory().release(*place_);
    }
    throw;
  }
}

void WindowCore::connect(const std::vector<WindowRecord>& records) {
  const int own_rank = context_->rank();
  for (std::size_t r = 0; r < records.size(); ++r) {
    const WindowRecord& record = records[r];
    Part& part = parts_.emplace_back();
    part.address = record.address;
    part.own_value = record.own_value;
    part.own_index = index_of(record.sources, own_rank);
    if (hub_->memory().reaches(static_cast<int>(r))) {
      std::byte* const block = hub_->memory().base_of(static_cast<int>(r)) + record.place;
      const auto shape = shape_of(record.sources.size(), record.own_value);
      part.memory = peers_ == nullptr ? WindowMemory(block, shape)
                    : static_cast<int>(r) == own_rank
                        ? *own_
                        : WindowMemory(block, opened_[r].buffers, shape);
    }
  }
  if (WindowServer* const server = hub_->server()) {
    const TakeLock take = [this, own_rank](shm::RobustLock& lock) {
      take_in_time(lock, {.rank = own_rank});
    };
    server->add(number_, std::make_shared<ServedWindow>(*own_, tensor_, sources_, take));
  }
  // Nobody asks for what is not served yet.
  barrier(*context_);
}

void WindowCore::close() {
  constexpr std::string_view kCall = "win_free";
  check_open(kCall);
  const Engine::LargerCall whole(context_->core().engine());
  hub_->tasks().drain();
  for (std::size_t rank = 0; rank < parts_.size(); ++rank) {
    if (parts_[rank].memory && parts_[rank].memory->is_freed()) {
      const WindowGoneError gone(static_cast<int>(rank),
                            fmt::format("{}: rank {} has destroyed it", where(kCall), rank));
      context_->core().engine().refuse(gone.what());  // ranks that wait for this one here
      throw gone;
    }
  }
  // Every rank takes part, and all keep the window or none does.
  const std::string obstacle = obstacle_to_freeing();
  const std::vector<std::string> obstacles =
      allgather_parts(*context_, fmt::format("{} '{}'", kCall, name_), obstacle);
  if (!obstacle.empty()) {
    throw StateError(fmt::format("{}: {}", where(kCall), obstacle));
  }
  for (std::size_t rank = 0; rank < obstacles.size(); ++rank) {
    if (!obstacles[rank].empty()) {
      throw PeerFailure(static_cast<int>(rank), fmt::format("{}: rank {} did not free it: {}",
                                                            where(kCall), rank, obstacles[rank]));
    }
  }
  is_closed_ = true;
  release_own_mutexes();
  close_peers();
  barrier(*context_);
  abandon();
  release_block();
  hub_->memory().release(*place_);
}

void WindowCore::abandon() noexcept {
  is_closed_ = true;
  if (has_left_.exchange(true) || context_->core().engine().is_forked()) {
    return;
  }
  if (own_) {
    own_->mark_freed();
  }
  if (WindowServer* const server = hub_->server()) {
    server->remove(number_);
  }
}

// ---- calls

std::string WindowCore::where(std::string_view call) const {
  return fmt::format("rank {}, window '{}', {}", context_->rank(), name_, call);
}

std::string WindowCore::place_of(std::string_view call, const std::exception& error) const {
  return fmt::format("{}: {}", where(call), error.what());
}

WindowCall WindowCore::begin_call(std::string_view name) {
  return WindowCall(*context_, name, envelope_);
}

}  // namespace bluefog::ops
