#include "ops/window_core.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <boost/container/small_vector.hpp>
#include <exception>
#include <functional>
#include <span>
#include <utility>

#include "bluefog_cpp/base/error.hpp"
#include "bluefog_cpp/base/message_of.hpp"
#include "bluefog_cpp/transport/exchange.hpp"
#include "bluefog_cpp/transport/one_sided/window_gone.hpp"
#include "ops/allgather_parts.hpp"
#include "ops/collectives.hpp"
#include "ops/combine.hpp"
#include "ops/served_window.hpp"
#include "ops/validation.hpp"

namespace bluefog::ops {
namespace {

std::size_t index_of(const std::vector<std::int32_t>& ranks, int rank) {
  return static_cast<std::size_t>(std::ranges::find(ranks, rank) - ranks.begin());
}

}  // namespace

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
  check_buffer(*context_, kKind, tensor_);
  check_floating(*context_, kKind, tensor_.dtype);
  check_plan(*context_, kKind, &plan_);
  return {.dtype = tensor_.dtype,
          .count = tensor_.count,
          .associated_weight = counts_weight(),
          .sources = sources_,
          .destinations = ranks_of(plan_.destinations),
          .name = name_};
}

void WindowCore::allocate(WindowFill fill) {
  place_ = hub_->memory().allocate(WindowMemory::size_of_block(sources_.size(), tensor_.bytes()));
  own_.emplace(hub_->memory().base_of(context_->rank()) + *place_, sources_.size(), tensor_.dtype,
               tensor_.bytes());
  own_->initialize(value_for(fill));
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
  if (refusal) {
    std::rethrow_exception(refusal);
  }
  check_records(records, context_->rank());
  return records;
}

void WindowCore::open(WindowFill fill) {
  const Engine::LargerCall whole(context_->engine());
  // Every rank takes part, whatever is wrong with its own arguments.
  WindowRecord record{.name = name_};
  std::exception_ptr refusal;
  try {
    record = describe();
  } catch (const std::exception&) {
    refusal = std::current_exception();
  }
  try {
    static_cast<void>(exchange(record, refusal));
    // All ranks are here, and go on.
    hub_ = &context_->one_sided();
    number_ = hub_->take_window_number();
    try {
      allocate(fill);
      record.place = *place_;
      record.address = reinterpret_cast<std::uintptr_t>(tensor_.data);
    } catch (const std::exception& e) {
      refusal = std::make_exception_ptr(
          Error(fmt::format("{}: {}", where("win_create"), e.what())));
    }
    connect(exchange(record, refusal));
  } catch (...) {
    // No rank has the window, so no rank uses the memory.
    is_closed_ = true;
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
    part.own_index = index_of(record.sources, own_rank);
    if (hub_->memory().reaches(static_cast<int>(r))) {
      part.memory.emplace(hub_->memory().base_of(static_cast<int>(r)) + record.place,
                          record.sources.size(), tensor_.dtype, tensor_.bytes());
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
  const Engine::LargerCall whole(context_->engine());
  hub_->tasks().drain();
  for (std::size_t rank = 0; rank < parts_.size(); ++rank) {
    if (parts_[rank].memory && parts_[rank].memory->is_freed()) {
      const WindowGone gone(static_cast<int>(rank),
                            fmt::format("{}: rank {} has destroyed it", where(kCall), rank));
      context_->engine().refuse(gone.what());  // ranks that wait for this one here
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
  barrier(*context_);
  abandon();
  hub_->memory().release(*place_);
}

void WindowCore::abandon() noexcept {
  is_closed_ = true;
  if (has_left_.exchange(true) || context_->engine().is_forked()) {
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

WindowCall WindowCore::begin_call(std::string_view name) {
  return WindowCall(*context_, name, envelope_);
}

template <typename Body>
void WindowCore::run(std::string_view name, const Body& body) {
  WindowCall call = begin_call(name);
  try {
    body(call);
  } catch (const std::exception& e) {
    call.fail(e.what());
    throw;
  }
}

// ---- data

WindowServer::Answer WindowCore::ask(WindowCall& call, WindowWait::For what, int rank,
                                     WindowMessage request, std::span<const std::byte> payload,
                                     std::span<std::byte> room) {
  request.dtype = tensor_.dtype;
  request.window = number_;
  WindowWait wait(call, what, rank);
  const auto answer = hub_->server()->ask(
      rank, request, payload, room,
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
    throw WindowGone(rank, fmt::format("{}: rank {} has freed or destroyed it, or has ended", where(call), rank));
  }
  if (const auto obituary = hub_->obituary(rank)) {
    throw PeerFailure(rank, fmt::format("{}, rank {}: {}", where(call), rank, *obituary));
  }
  return &*memory;
}

void WindowCore::store_at(WindowCall& call, int rank, StoreMode mode, const WeightedBytes& value) {
  if (const WindowMemory* const memory = reachable(rank, call.name())) {
    const LockSite site{.call = &call, .rank = rank};
    memory->store(part(rank).own_index, mode, value,
                  [this, &site](shm::RobustLock& lock) { take_in_time(lock, site); });
    return;
  }
  ask(call, WindowWait::For::Answer, rank,
      {.kind = mode == StoreMode::Add ? WindowMessage::Kind::Accumulate : WindowMessage::Kind::Put,
       .weight = value.weight,
       .mass = value.mass},
      {value.data, tensor_.bytes()});
}

void WindowCore::store(const BufferView& tensor, StoreMode mode, const WindowPutOptions& options) {
  auto* const data = static_cast<std::byte*>(tensor.data);
  const double mass = counts_weight() ? own_->mass().load() : 0.0;
  const auto& destinations = options.destinations ? *options.destinations : plan_.destinations;
  run(mode == StoreMode::Add ? "win_accumulate" : "win_put", [&](WindowCall& call) {
    for (const WeightedRank& destination : destinations) {
      const WindowCall::Part span(call, destination.rank);
      const auto lock =
          options.exclusion == Exclusion::Mutex
              ? std::optional<MutexHolder>(std::in_place, *this, destination.rank, call)
              : std::nullopt;
      store_at(call, destination.rank, mode,
               {.data = data, .weight = destination.weight, .mass = destination.weight * mass});
    }
  });
  if (options.self_weight != 1.0) {
    const Operand operand{.data = data, .weight = options.self_weight};
    weighted_sum(tensor.dtype, data, {&operand, 1}, tensor.bytes());
    if (counts_weight()) {
      // An update meanwhile has added what it took in: that stays.
      double expected = mass;
      if (!own_->mass().compare_exchange_strong(expected, mass * options.self_weight)) {
        own_->mass().fetch_add(mass * (options.self_weight - 1.0));
      }
    }
  }
}

void WindowCore::read_from(const WindowCall& call, int rank, std::byte* to) {
  try {
    hub_->reader().read(rank, part(rank).address, to, tensor_.bytes());
  } catch (const PeerFailure& failure) {
    throw PeerFailure(rank, fmt::format("{}: {}", where(call.name()), failure.what()));
  } catch (const TransportError& error) {
    throw TransportError(fmt::format("{}: {}", where(call.name()), error.what()));
  }
}

void WindowCore::fetch_from(WindowCall& call, const WeightedRank& source) {
  const std::size_t index = index_of(sources_, source.rank);
  const LockSite site{.call = &call, .rank = context_->rank()};
  const TakeLock take = [this, &site](shm::RobustLock& lock) { take_in_time(lock, site); };
  const WindowMemory* const memory = reachable(source.rank, call.name());
  if (memory != nullptr && hub_->reader().reaches(source.rank)) {
    const double mass = counts_weight() ? source.weight * memory->mass().load() : 0.0;
    const auto read = [&](std::byte* to) { read_from(call, source.rank, to); };
    own_->store_read(
        index, {.weight = source.weight, .mass = mass},
        std::ref(read),  // a function of three captures would allocate
        take);
    return;
  }
  std::vector<std::byte> room(tensor_.bytes());
  const auto answer = ask(call, WindowWait::For::Answer, source.rank,
                          {.kind = WindowMessage::Kind::Get}, {}, room);
  own_->store(index, StoreMode::Replace,
              {.data = room.data(),
               .weight = source.weight,
               .mass = counts_weight() ? source.weight * answer.mass : 0.0},
              take);
}

void WindowCore::fetch(const WindowGetOptions& options) {
  run("win_get", [&](WindowCall& call) {
    for (const WeightedRank& source : options.sources ? *options.sources : plan_.sources) {
      const WindowCall::Part span(call, source.rank);
      const auto lock = options.exclusion == Exclusion::Mutex
                            ? std::optional<MutexHolder>(std::in_place, *this, source.rank, call)
                            : std::nullopt;
      fetch_from(call, {.rank = source.rank, .weight = options.sources ? source.weight : 1.0});
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
    const auto lock =
        options.exclusion == Exclusion::Mutex
            ? std::optional<MutexHolder>(std::in_place, *this, context_->rank(), call)
            : std::nullopt;
    const LockSite site{.call = &call, .rank = context_->rank()};
    own_->combine(
        static_cast<std::byte*>(options.output ? options.output->data : tensor_.data),
        static_cast<const std::byte*>(tensor_.data), self_weight, {terms.data(), terms.size()},
        options.reset == BufferReset::Zero ? WindowMemory::After::Zero : WindowMemory::After::Keep,
        counts_weight() ? WindowMemory::Mass::On : WindowMemory::Mass::Off,
        [this, &site](shm::RobustLock& of_buffer) { take_in_time(of_buffer, site); });
  });
}

const std::byte* WindowCore::value_for(WindowFill fill) const noexcept {
  return fill == WindowFill::OwnValue ? static_cast<const std::byte*>(tensor_.data) : nullptr;
}

void WindowCore::fill(WindowFill fill) {
  run("win_fill", [&](WindowCall& call) {
    const LockSite site{.call = &call, .rank = context_->rank()};
    own_->fill(value_for(fill), [this, &site](shm::RobustLock& lock) { take_in_time(lock, site); });
  });
}

}  // namespace bluefog::ops
