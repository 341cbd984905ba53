#include "ops/window/window_core.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/container/small_vector.hpp>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "bluefog_cpp/context/context_core.hpp"
#include "bluefog_cpp/engine/exchange.hpp"
#include "bluefog_cpp/error.hpp"
#include "ops/calls/allgather_parts.hpp"
#include "ops/collectives.hpp"
#include "ops/sums/combine.hpp"
#include "ops/window/arrival_wait.hpp"
#include "ops/window/device/device_wait.hpp"
#include "ops/window/device/device_window_work.hpp"
#include "ops/window/window_setup.hpp"

namespace bluefog::ops {

WindowCore::WindowCore(Context& context, BufferView tensor, const NeighborPlan& plan,
                       const WindowOptions& options)
    : identity_(context, std::move(tensor), plan, options.name),
      weight_state_(options.associated_weight) {}

void WindowCore::open(WindowFill fill) {
  WindowSetup setup(
      {.window = identity_, .own = own_, .buffers = buffers_, .tensors = tensors_, .ranks = parts_},
      weight_state_);
  try {
    setup.open(fill);
  } catch (...) {
    is_closed_ = true;
    throw;
  }
}

void WindowCore::check_open(std::string_view call) const {
  if (is_closed_) {
    throw StateError(fmt::format("{}: the window has been freed", identity_.where(call)));
  }
  if (identity_.context().core().engine().is_forked()) {
    throw StateError(fmt::format("{}: expected the process of that rank, found a fork of it",
                                 identity_.where(call)));
  }
}

// Only the thread that has taken a mutex can release it.
std::string WindowCore::obstacle_to_freeing() {
  const int rank = identity_.rank();
  if (buffers_.are_used() &&
      !identity_.placed("win_free", [this] { return buffers_.memory().is_idle(); })) {
    return fmt::format("work of rank {} is still under way on CUDA device {}", rank,
                       identity_.tensor().device.index);
  }
  const auto held = mutexes_.held_elsewhere();
  return held ? fmt::format("another thread of rank {} holds the mutex of rank {}", rank, *held)
              : std::string();
}

void WindowCore::close() {
  constexpr std::string_view kCall = "win_free";
  check_open(kCall);
  Context& context = identity_.context();
  const Engine::LargerCall whole(context.core().engine());
  tasks().drain();
  if (const auto rank = parts_.first_freed()) {
    const WindowGoneError gone(
        *rank, fmt::format("{}: rank {} has destroyed it", identity_.where(kCall), *rank));
    context.core().engine().refuse(gone.what());  // ranks that wait for this one here
    throw gone;
  }
  // Every rank takes part, and all keep the window or none does.
  const std::string obstacle = obstacle_to_freeing();
  const std::vector<std::string> obstacles =
      allgather_parts(context, fmt::format("{} '{}'", kCall, identity_.name()), obstacle);
  if (!obstacle.empty()) {
    throw StateError(fmt::format("{}: {}", identity_.where(kCall), obstacle));
  }
  for (std::size_t rank = 0; rank < obstacles.size(); ++rank) {
    if (!obstacles[rank].empty()) {
      throw PeerFailure(static_cast<int>(rank),
                        fmt::format("{}: rank {} did not free it: {}", identity_.where(kCall), rank,
                                    obstacles[rank]));
    }
  }
  is_closed_ = true;
  mutexes_.release_own();
  buffers_.close();
  barrier(context);
  abandon();
  buffers_.release();
  own_.release(identity_.hub().memory());
}

void WindowCore::abandon() noexcept {
  is_closed_ = true;
  if (has_left_.exchange(true) || identity_.context().core().engine().is_forked()) {
    return;
  }
  if (own_.is_there()) {
    own_.memory().mark_freed();
  }
  if (WindowServer* const server = identity_.hub().server()) {
    server->remove(identity_.number());
  }
}

Work WindowCore::start(std::shared_ptr<DeviceTensors> tensors, std::function<void()> task) {
  Work work = tasks().submit(std::move(task));
  if (!tensors) {
    return work;
  }
  const std::shared_ptr<const WindowIdentity> kept(shared_from_this(), &identity_);
  return Work(std::make_shared<DeviceWindowWork>(kept, std::move(work), std::move(tensors)));
}

LockSite WindowCore::own_site(WindowCall& call) const {
  return {.window = identity_, .call = &call, .rank = identity_.rank()};
}

void WindowCore::publish_value(WindowCall& call, const std::byte* value, WindowValues* values) {
  const LockSite site = own_site(call);
  own_.memory().publish(value, site.taker(), values);
}

void WindowCore::store_at(WindowCall& call, int rank, StoreMode mode, const WeightedBytes& value,
                          WindowValues* values, const CodedPut* coded) {
  if (const WindowMemory* const memory = parts_.reachable(rank, call.name())) {
    const LockSite site{.window = identity_, .call = &call, .rank = rank};
    memory->store(parts_.of(rank).own_index, mode, value, site.taker(), values);
    return;
  }
  WindowMessage request{
      .kind = mode == StoreMode::Add ? WindowMessage::Kind::Accumulate : WindowMessage::Kind::Put,
      .weight = value.weight,
      .mass = value.mass,
      .stamp = value.stamp};
  std::span payload(value.data, identity_.tensor().bytes());
  if (coded != nullptr) {
    coded->name.copy(request.text.data(), request.text.size() - 1);
    payload = coded->code;
  }
  parts_.ask(call, WindowWait::For::Answer, rank, request, payload);
}

void WindowCore::store(const BufferView& tensor, StoreMode mode, const WindowPutOptions& options,
                       DeviceTensors* tensors, Caller caller) {
  const double mass = counts_weight() ? own_.memory().mass().load() : 0.0;
  const auto& destinations =
      options.destinations ? *options.destinations : identity_.plan().destinations;
  const char* const name = mode == StoreMode::Add ? "win_accumulate" : "win_put";
  identity_.run(name, [&](WindowCall& call) {
    const auto coded = options.compression
                           ? std::optional(coded_put(identity_, *options.compression, tensor, name))
                           : std::nullopt;
    tensors_.on_values(call, tensor.data, tensors, [&](std::byte* data, WindowValues* values) {
      for (const WeightedRank& destination : destinations) {
        const WindowCall::Part span(call, destination.rank);
        const auto lock =
            options.exclusion == Exclusion::Mutex
                ? std::optional<MutexHolder>(std::in_place, mutexes_, destination.rank, call)
                : std::nullopt;
        store_at(call, destination.rank, mode,
                 {.data = coded ? coded->values.data() : data,
                  .weight = destination.weight,
                  .mass = destination.weight * mass,
                  .stamp = options.stamp},
                 values, coded ? &*coded : nullptr);
      }
      if (options.self_weight != 1.0) {
        scale(data, mass, options.self_weight, values);
      }
      if (identity_.publishes() && tensor.data == identity_.tensor().data) {
        publish_value(call, data, values);
      }
    });
    if (tensors != nullptr && caller == Caller::GoesOn) {
      wait_for_device(identity_, call, DeviceWait::Copy, [tensors] { return tensors->is_over(); });
    }
  });
}

void WindowCore::scale(std::byte* data, double mass, double self_weight, WindowValues* values) {
  const Operand operand{.data = data, .weight = self_weight};
  if (values != nullptr) {
    values->weighted_sum(identity_.tensor().dtype, data, {&operand, 1}, identity_.tensor().bytes());
    values->settle();
  } else {
    weighted_sum(identity_.tensor().dtype, data, {&operand, 1}, identity_.tensor().bytes());
  }
  if (counts_weight()) {
    // An update meanwhile has added what it took in: that stays.
    double expected = mass;
    if (!own_.memory().mass().compare_exchange_strong(expected, mass * self_weight)) {
      own_.memory().mass().fetch_add(mass * (self_weight - 1.0));
    }
  }
}

void WindowCore::fetch_from(WindowCall& call, const WeightedRank& source, WindowValues* values) {
  const WindowMemory* const memory = parts_.reachable(source.rank, call.name());
  if (memory != nullptr && (parts_.of(source.rank).own_value == OwnValue::Published ||
                            identity_.hub().reader().reaches(source.rank))) {
    fetch_shared(call, source, *memory, values);
  } else {
    fetch_by_asking(call, source);
  }
}

void WindowCore::fetch_shared(WindowCall& call, const WeightedRank& source,
                              const WindowMemory& memory, WindowValues* values) {
  const LockSite own = own_site(call);
  const LockSite published{.window = identity_, .call = &call, .rank = source.rank};
  const TakeLock take_published = published.taker();
  const bool is_published = parts_.of(source.rank).own_value == OwnValue::Published;
  const auto read = [&](std::byte* to) {
    if (is_published) {
      memory.copy_published(to, take_published, values);
    } else {
      parts_.read_tensor(call, source.rank, to);
    }
  };
  const double mass = counts_weight() ? source.weight * memory.mass().load() : 0.0;
  own_.memory().store_read(index_of(identity_.sources(), source.rank),
                           {.weight = source.weight, .mass = mass},
                           std::ref(read),  // a function of so many captures would allocate
                           own.taker(), values);
}

void WindowCore::fetch_by_asking(WindowCall& call, const WeightedRank& source) {
  std::vector<std::byte> room(identity_.tensor().bytes());
  const auto answer = parts_.ask(call, WindowWait::For::Answer, source.rank,
                                 {.kind = WindowMessage::Kind::Get}, {}, room);
  const LockSite own = own_site(call);
  own_.memory().store(index_of(identity_.sources(), source.rank), StoreMode::Replace,
                      {.data = room.data(),
                       .weight = source.weight,
                       .mass = counts_weight() ? source.weight * answer.mass : 0.0},
                      own.taker());
}

void WindowCore::fetch(const WindowGetOptions& options, DeviceTensors* tensors) {
  identity_.run("win_get", [&](WindowCall& call) {
    const auto fetch_all = [&](WindowValues* values) {
      for (const WeightedRank& source :
           options.sources ? *options.sources : identity_.plan().sources) {
        const WindowCall::Part span(call, source.rank);
        const auto lock =
            options.exclusion == Exclusion::Mutex
                ? std::optional<MutexHolder>(std::in_place, mutexes_, source.rank, call)
                : std::nullopt;
        fetch_from(call, {.rank = source.rank, .weight = options.sources ? source.weight : 1.0},
                   values);
      }
    };
    if (tensors == nullptr) {
      fetch_all(nullptr);
      return;
    }
    const bool is_copy = tensors->staged() != nullptr;
    tensors_.on_values(call, identity_.tensor().data, tensors,
                       [&](const std::byte* value, WindowValues* values) {
                         publish_value(call, value, values);
                         if (!is_copy) {
                           fetch_all(values);
                         }
                       });
    if (is_copy) {
      fetch_all(nullptr);  // which needs the copy no more
    }
  });
}

void WindowCore::announce(std::int64_t stamp) {
  identity_.run("win_announce", [&](WindowCall& call) {
    for (const WeightedRank& destination : identity_.plan().destinations) {
      try {
        if (const WindowMemory* const memory = parts_.reachable(destination.rank, call.name())) {
          memory->set_stamp(parts_.of(destination.rank).own_index, stamp);
        } else {
          parts_.notify(destination.rank, {.kind = WindowMessage::Kind::Stamp, .stamp = stamp});
        }
      } catch (const WindowGoneError&) {  // nothing of it waits any more
      } catch (const PeerFailure&) {      // likewise
      }
    }
  });
}

bool WindowCore::wait_for(std::span<const WeightedRank> sources, std::int64_t stamp,
                          std::optional<std::chrono::nanoseconds> longest) {
  bool has_all = true;
  identity_.run("win_wait", [&](WindowCall& call) {
    const ArrivalWait wait(identity_, parts_, own_.memory(), call, longest);
    for (const WeightedRank& source : sources) {
      has_all = wait.wait_for(source.rank, stamp) && has_all;
    }
  });
  return has_all;
}

void WindowCore::update(const WindowUpdateOptions& options) {
  const double self_weight =
      options.weights ? options.weights->self_weight : identity_.plan().self_weight;
  const auto& sources = options.weights ? options.weights->sources : identity_.plan().sources;
  boost::container::small_vector<WindowMemory::Term, kInlineNeighbors> terms;
  for (const WeightedRank& source : sources) {
    terms.push_back({.index = index_of(identity_.sources(), source.rank), .weight = source.weight});
  }
  std::ranges::sort(std::span(terms.data(), terms.size()), {}, &WindowMemory::Term::index);
  const auto own_place = static_cast<std::size_t>(std::ranges::count_if(
      sources, [this](const WeightedRank& source) { return source.rank < identity_.rank(); }));
  identity_.run("win_update", [&](WindowCall& call) {
    const auto lock =
        options.exclusion == Exclusion::Mutex
            ? std::optional<MutexHolder>(std::in_place, mutexes_, identity_.rank(), call)
            : std::nullopt;
    const LockSite site = own_site(call);
    const BufferView own = identity_.tensor_on(options.stream);
    const BufferView& output = options.output ? *options.output : own;
    // Inside the mutex: what another thread has done to the tensor under it counts.
    const auto tensors = tensors_.note("win_update", own, output, {.held = true});
    WindowTensors::in_order(tensors.get(), [&] {
      tensors_.on_values(call, output.data, tensors.get(),
                         [&](std::byte* out, WindowValues* values) {
                           const bool is_copy = tensors && tensors->staged() != nullptr;
                           own_.memory().combine(
                               out,
                               {.data = is_copy ? out : static_cast<const std::byte*>(own.data),
                                .weight = self_weight,
                                .place = own_place},
                               {terms.data(), terms.size()},
                               options.reset == BufferReset::Zero ? WindowMemory::After::Zero
                                                                  : WindowMemory::After::Keep,
                               counts_weight() ? WindowMemory::Mass::On : WindowMemory::Mass::Off,
                               site.taker(), values);
                           if (identity_.publishes() && output.data == identity_.tensor().data) {
                             publish_value(call, out, values);
                           }
                         });
    });
  });
}

void WindowCore::fill(WindowFill fill, WindowStream stream) {
  identity_.run("win_fill", [&](WindowCall& call) {
    const LockSite site = own_site(call);
    const auto fill_with = [&](const std::byte* value, WindowValues* values) {
      own_.memory().fill(value, site.taker(), values);
    };
    if (fill == WindowFill::Zeros) {
      tensors_.on_values(call, nullptr, nullptr, fill_with);
      return;
    }
    const auto tensors = tensors_.note_own("win_fill", stream);
    WindowTensors::in_order(tensors.get(), [&] {
      tensors_.on_values(call, identity_.tensor().data, tensors.get(),
                         [&](const std::byte* value, WindowValues* values) {
                           fill_with(value, values);
                           if (identity_.publishes()) {
                             publish_value(call, value, values);
                           }
                         });
    });
  });
}

void WindowCore::publish(WindowStream stream) {
  constexpr std::string_view kCall = "win_publish";
  if (!identity_.publishes()) {
    return;
  }
  identity_.run(kCall, [&](WindowCall& call) {
    const auto tensors = tensors_.note_own(kCall, stream);
    WindowTensors::in_order(tensors.get(), [&] {
      tensors_.on_values(call, identity_.tensor().data, tensors.get(),
                         [&](const std::byte* value, WindowValues* values) {
                           publish_value(call, value, values);
                         });
    });
  });
}

}  // namespace bluefog::ops
