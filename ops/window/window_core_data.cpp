// What a window's calls do with values, wherever these are.
#include <fmt/format.h>

#include <algorithm>
#include <boost/container/small_vector.hpp>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "bluefog_cpp/engine/exchange.hpp"
#include "bluefog_cpp/error.hpp"
#include "ops/sums/combine.hpp"
#include "ops/window/window_core.hpp"

namespace bluefog::ops {

WindowServer::Answer WindowCore::ask(WindowCall& call, WindowWait::For what, int rank,
                                     WindowMessage request, std::span<const std::byte> payload,
                                     std::span<std::byte> room) {
  request.dtype = tensor_.dtype;
  request.window = number_;
  WindowWait wait(call, what, rank);
  const auto answer =
      hub_->server()->ask(rank, request, payload, room,
                          {.deadline = hub_->deadline(),
                           .where = [this, &call] { return where(call.name()); },
                           .waiting = [&wait](int holder) { wait.goes_on(holder); }});
  wait.is_over();
  return answer;
}

const WindowMemory* WindowCore::reachable(int rank, std::string_view call) {
  const auto& memory = part(rank).memory;
  if (!memory) {
    return nullptr;
  }
  if (memory->is_freed()) {  // before it ended, if it has: it had finished
    throw WindowGoneError(rank, fmt::format("{}: rank {} has freed or destroyed it, or has ended",
                                       where(call), rank));
  }
  if (const auto obituary = hub_->obituary(rank)) {
    throw PeerFailure(rank, fmt::format("{}, rank {}: {}", where(call), rank, *obituary));
  }
  return &*memory;
}

void WindowCore::store_at(WindowCall& call, int rank, StoreMode mode, const WeightedBytes& value,
                          WindowValues* values) {
  if (const WindowMemory* const memory = reachable(rank, call.name())) {
    const LockSite site{.call = &call, .rank = rank};
    memory->store(
        part(rank).own_index, mode, value,
        [this, &site](shm::RobustLock& lock) { take_in_time(lock, site); }, values);
    return;
  }
  ask(call, WindowWait::For::Answer, rank,
      {.kind = mode == StoreMode::Add ? WindowMessage::Kind::Accumulate : WindowMessage::Kind::Put,
       .weight = value.weight,
       .mass = value.mass},
      {value.data, tensor_.bytes()});
}

void WindowCore::store(const BufferView& tensor, StoreMode mode, const WindowPutOptions& options,
                       DeviceTensors* tensors, Caller caller) {
  const double mass = counts_weight() ? own_->mass().load() : 0.0;
  const auto& destinations = options.destinations ? *options.destinations : plan_.destinations;
  run(mode == StoreMode::Add ? "win_accumulate" : "win_put", [&](WindowCall& call) {
    on_values(call, tensor.data, tensors, [&](std::byte* data, WindowValues* values) {
      for (const WeightedRank& destination : destinations) {
        const WindowCall::Part span(call, destination.rank);
        const auto lock =
            options.exclusion == Exclusion::Mutex
                ? std::optional<MutexHolder>(std::in_place, *this, destination.rank, call)
                : std::nullopt;
        store_at(call, destination.rank, mode,
                 {.data = data, .weight = destination.weight, .mass = destination.weight * mass},
                 values);
      }
      if (options.self_weight != 1.0) {
        scale(data, mass, options.self_weight, values);
      }
      if (publishes() && tensor.data == tensor_.data) {
        publish_value(call, data, values);
      }
    });
    if (tensors != nullptr && caller == Caller::GoesOn) {
      wait_for_device(call, DeviceWait::Copy, [tensors] { return tensors->is_over(); });
    }
  });
}

void WindowCore::scale(std::byte* data, double mass, double self_weight, WindowValues* values) {
  const Operand operand{.data = data, .weight = self_weight};
  if (values != nullptr) {
    values->weighted_sum(tensor_.dtype, data, {&operand, 1}, tensor_.bytes());
    values->settle();
  } else {
    weighted_sum(tensor_.dtype, data, {&operand, 1}, tensor_.bytes());
  }
  if (counts_weight()) {
    // An update meanwhile has added what it took in: that stays.
    double expected = mass;
    if (!own_->mass().compare_exchange_strong(expected, mass * self_weight)) {
      own_->mass().fetch_add(mass * (self_weight - 1.0));
    }
  }
}

void WindowCore::read_from(const WindowCall& call, int rank, std::byte* to) {
  try {
    hub_->reader().read(rank, part(rank).address, to, tensor_.bytes());
  } catch (const PeerFailure& failure) {
    (void)reachable(rank, call.name());  // it may have finished meanwhile
    throw PeerFailure(rank, fmt::format("{}: {}", where(call.name()), failure.what()));
  } catch (const TransportError& error) {
    throw TransportError(fmt::format("{}: {}", where(call.name()), error.what()));
  }
}

void WindowCore::fetch_from(WindowCall& call, const WeightedRank& source, WindowValues* values) {
  const std::size_t index = index_of(sources_, source.rank);
  const LockSite site{.call = &call, .rank = context_->rank()};
  const TakeLock take = [this, &site](shm::RobustLock& lock) { take_in_time(lock, site); };
  const WindowMemory* const memory = reachable(source.rank, call.name());
  const bool is_published = part(source.rank).own_value == OwnValue::Published;
  if (memory != nullptr && (is_published || hub_->reader().reaches(source.rank))) {
    const double mass = counts_weight() ? source.weight * memory->mass().load() : 0.0;
    const LockSite published{.call = &call, .rank = source.rank};
    const TakeLock take_published = [this, &published](shm::RobustLock& lock) {
      take_in_time(lock, published);
    };
    const auto read = [&](std::byte* to) {
      if (is_published) {
        memory->copy_published(to, take_published, values);
      } else {
        read_from(call, source.rank, to);
      }
    };
    own_->store_read(index, {.weight = source.weight, .mass = mass},
                     std::ref(read),  // a function of so many captures would allocate
                     take, values);
    return;
  }
  std::vector<std::byte> room(tensor_.bytes());
  const auto answer =
      ask(call, WindowWait::For::Answer, source.rank, {.kind = WindowMessage::Kind::Get}, {}, room);
  own_->store(index, StoreMode::Replace,
              {.data = room.data(),
               .weight = source.weight,
               .mass = counts_weight() ? source.weight * answer.mass : 0.0},
              take);
}

void WindowCore::fetch(const WindowGetOptions& options, DeviceTensors* tensors) {
  run("win_get", [&](WindowCall& call) {
    const auto fetch_all = [&](WindowValues* values) {
      for (const WeightedRank& source : options.sources ? *options.sources : plan_.sources) {
        const WindowCall::Part span(call, source.rank);
        const auto lock = options.exclusion == Exclusion::Mutex
                              ? std::optional<MutexHolder>(std::in_place, *this, source.rank, call)
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
    on_values(call, tensor_.data, tensors, [&](const std::byte* value, WindowValues* values) {
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

void WindowCore::update(const WindowUpdateOptions& options) {
  const double self_weight = options.weights ? options.weights->self_weight : plan_.self_weight;
  const auto& sources = options.weights ? options.weights->sources : plan_.sources;
  boost::container::small_vector<WindowMemory::Term, kInlineNeighbors> terms;
  for (const WeightedRank& source : sources) {
    terms.push_back({.index = index_of(sources_, source.rank), .weight = source.weight});
  }
  std::ranges::sort(std::span(terms.data(), terms.size()), {}, &WindowMemory::Term::index);
  run("win_update", [&](WindowCall& call) {
    const auto lock = options.exclusion == Exclusion::Mutex
                          ? std::optional<MutexHolder>(std::in_place, *this, context_->rank(), call)
                          : std::nullopt;
    const LockSite site{.call = &call, .rank = context_->rank()};
    const BufferView own = tensor_on(options.stream);
    const BufferView& output = options.output ? *options.output : own;
    // Inside the mutex: what another thread has done to the tensor under it counts.
    const auto tensors = note("win_update", own, output, {.held = true});
    in_order(tensors.get(), [&] {
      on_values(call, output.data, tensors.get(), [&](std::byte* out, WindowValues* values) {
        const bool is_copy = tensors && tensors->staged() != nullptr;
        own_->combine(out, is_copy ? out : static_cast<const std::byte*>(own.data), self_weight,
                      {terms.data(), terms.size()},
                      options.reset == BufferReset::Zero ? WindowMemory::After::Zero
                                                         : WindowMemory::After::Keep,
                      counts_weight() ? WindowMemory::Mass::On : WindowMemory::Mass::Off,
                      [this, &site](shm::RobustLock& of_buffer) { take_in_time(of_buffer, site); },
                      values);
        if (publishes() && output.data == tensor_.data) {
          publish_value(call, out, values);
        }
      });
    });
  });
}

void WindowCore::fill(WindowFill fill, WindowStream stream) {
  run("win_fill", [&](WindowCall& call) {
    const LockSite site{.call = &call, .rank = context_->rank()};
    const auto fill_with = [&](const std::byte* value, WindowValues* values) {
      own_->fill(
          value, [this, &site](shm::RobustLock& lock) { take_in_time(lock, site); }, values);
    };
    if (fill == WindowFill::Zeros) {
      on_values(call, nullptr, nullptr, fill_with);
      return;
    }
    const auto tensors = note_own("win_fill", stream);
    in_order(tensors.get(), [&] {
      on_values(call, tensor_.data, tensors.get(),
                [&](const std::byte* value, WindowValues* values) {
                  fill_with(value, values);
                  if (publishes()) {
                    publish_value(call, value, values);
                  }
                });
    });
  });
}

}  // namespace bluefog::ops
