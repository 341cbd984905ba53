#include "ops/window_core.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <boost/container/small_vector.hpp>
#include <chrono>
#include <cmath>
#include <exception>
#include <span>

#include "bluefog_cpp/base/error.hpp"
#include "bluefog_cpp/transport/exchange.hpp"
#include "bluefog_cpp/transport/one_sided/window_gone.hpp"
#include "ops/combine.hpp"
#include "ops/served_window.hpp"
#include "ops/validation.hpp"

namespace bluefog::ops {
namespace {

constexpr std::chrono::milliseconds kLockPeriod{50};
/// Where a lock is taken for a rank whose memory is not shared.
constexpr std::string_view kServed = "a call of a rank on another host";

std::vector<std::int32_t> ranks_of(const std::vector<WeightedRank>& list) {
  std::vector<std::int32_t> ranks;
  for (const WeightedRank& entry : list) {
    ranks.push_back(entry.rank);
  }
  return ranks;
}

std::size_t index_of(const std::vector<std::int32_t>& ranks, int rank) {
  return static_cast<std::size_t>(std::ranges::find(ranks, rank) - ranks.begin());
}

}  // namespace

WindowCore::WindowCore(Context& context, BufferView tensor, const NeighborPlan& plan,
                       const WindowOptions& options)
    : context_(context.shared_from_this()),
      hub_(&context.one_sided()),
      tensor_(std::move(tensor)),
      plan_(plan),
      name_(options.name),
      envelope_(Envelope::make(OpKind::Window, tensor_.dtype, tensor_.count, name_)),
      weight_state_(options.associated_weight),
      number_(hub_->take_window_number()),
      sources_(ranks_of(plan.sources)) {}

// ---- life

WindowRecord WindowCore::prepare(WindowFill fill) {
  WindowRecord record{.number = number_,
                      .dtype = tensor_.dtype,
                      .count = tensor_.count,
                      .sources = sources_,
                      .destinations = ranks_of(plan_.destinations),
                      .name = name_};
  constexpr OpKind kKind = OpKind::Window;
  check_buffer(*context_, kKind, tensor_);
  check_floating(*context_, kKind, tensor_.dtype);
  check_plan(*context_, kKind, &plan_);
  place_ = hub_->memory().allocate(WindowMemory::size_of_block(sources_.size(), tensor_.bytes()));
  own_.emplace(hub_->memory().base_of(context_->rank()) + *place_, sources_.size(), tensor_.dtype,
               tensor_.bytes());
  own_->initialize(value_for(fill));
  record.place = *place_;
  record.address = reinterpret_cast<std::uintptr_t>(tensor_.data);
  return record;
}

void WindowCore::open(WindowFill fill) {
  // Every rank takes part, whatever is wrong with its own arguments.
  WindowRecord record{.number = number_, .name = name_};
  std::exception_ptr refusal;
  try {
    record = prepare(fill);
  } catch (const std::exception& e) {
    refusal = std::current_exception();
    record.error = e.what();
  }
  std::vector<WindowRecord> records;
  for (const auto& blob : context_->bootstrap().allgather(record.to_blob(), hub_->deadline())) {
    records.push_back(WindowRecord::from_blob(blob));
  }
  try {
    if (refusal) {
      std::rethrow_exception(refusal);
    }
    check_records(records, context_->rank());
    connect(records);
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
  context_->bootstrap().barrier(hub_->deadline());
}

void WindowCore::close() {
  check_open("win_free");
  hub_->tasks().drain();
  is_closed_ = true;
  release_held_mutexes();
  context_->bootstrap().barrier(hub_->deadline());
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

// ---- locks

std::string WindowCore::where(std::string_view call) const {
  return fmt::format("rank {}, window '{}', {}", context_->rank(), name_, call);
}

void WindowCore::take_in_time(shm::RobustLock& lock, const LockSite& site) {
  using Outcome = shm::RobustLock::Outcome;
  const std::string_view name = site.call != nullptr ? site.call->name() : kServed;
  Outcome outcome = lock.try_take(context_->rank());
  if (outcome == Outcome::Busy) {
    const Deadline deadline = hub_->deadline();
    std::optional<WindowWait> wait;
    if (site.call != nullptr) {
      wait.emplace(*site.call, site.what, site.rank);
    }
    while ((outcome = lock.take(context_->rank(), kLockPeriod)) == Outcome::Busy) {
      if (wait) {  // the server's thread is not the user's
        wait->goes_on(lock.holder());
        hub_->check_interrupt();
      }
      if (deadline.expired()) {
        throw TimeoutError(
            fmt::format("{}: a lock was not free for the whole time (BLUEFOG_TIMEOUT); rank {} "
                        "holds it",
                        where(name), lock.holder()));
      }
    }
    if (wait) {
      wait->is_over();
    }
  }
  if (outcome == Outcome::Inherited) {
    context_->log().warning(
        fmt::format("{}: the rank that held a lock died with it; what it was writing may be half "
                    "written",
                    where(name)));
  }
}

WindowServer::Answer WindowCore::ask(WindowCall& call, WindowWait::For what, int rank,
                                     WindowMessage request, std::span<const std::byte> payload,
                                     std::span<std::byte> room) {
  request.dtype = tensor_.dtype;
  request.window = number_;
  WindowWait wait(call, what, rank);
  const auto answer = hub_->server()->ask(rank, request, payload, room, hub_->deadline(),
                                          [&wait](int holder) { wait.goes_on(holder); });
  wait.is_over();
  return answer;
}

std::uint64_t WindowCore::take_mutex(int rank, WindowCall& call) {
  std::uint64_t ticket = 0;
  if (const WindowMemory* const memory = reachable(rank, call.name())) {
    take_in_time(memory->mutex(), {.call = &call, .what = WindowWait::For::Mutex, .rank = rank});
  } else {
    ticket = ask(call, WindowWait::For::Mutex, rank, {.kind = WindowMessage::Kind::Lock}).ticket;
  }
  const std::scoped_lock lock(held_mutex_);
  held_.emplace_back(rank, ticket);
  return ticket;
}

void WindowCore::release_mutex(int rank, std::uint64_t ticket) noexcept {
  {
    const std::scoped_lock lock(held_mutex_);
    if (std::erase(held_, std::pair(rank, ticket)) == 0) {
      return;  // `close` has released it
    }
  }
  if (part(rank).memory) {
    part(rank).memory->mutex().release();
  } else {
    hub_->server()->tell(
        rank, {.kind = WindowMessage::Kind::Unlock, .window = number_, .ticket = ticket});
  }
}

// A lock that outlives its window would release what lies in its place by then.
void WindowCore::release_held_mutexes() {
  std::unique_lock lock(held_mutex_);
  const auto held = held_;
  lock.unlock();
  for (const auto& [rank, ticket] : held) {
    release_mutex(rank, ticket);
  }
}

// ---- calls

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

const WindowMemory* WindowCore::reachable(int rank, std::string_view call) {
  const auto& memory = part(rank).memory;
  if (!memory) {
    return nullptr;
  }
  if (memory->is_freed()) {  // before it ended, if it has: it had finished
    throw WindowGone(rank, fmt::format("{}: rank {} has freed it", where(call), rank));
  }
  hub_->check_alive(rank);
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

void WindowCore::fetch_from(WindowCall& call, const WeightedRank& source) {
  const std::size_t index = index_of(sources_, source.rank);
  const LockSite site{.call = &call, .rank = context_->rank()};
  const TakeLock take = [this, &site](shm::RobustLock& lock) { take_in_time(lock, site); };
  const WindowMemory* const memory = reachable(source.rank, call.name());
  if (memory != nullptr && hub_->reader().reaches(source.rank)) {
    const double mass = counts_weight() ? source.weight * memory->mass().load() : 0.0;
    own_->store_read(
        index, {.weight = source.weight, .mass = mass},
        [&](std::byte* to) {
          hub_->reader().read(source.rank, part(source.rank).address, to, tensor_.bytes());
        },
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

// ---- arguments

void WindowCore::check_open(std::string_view call) const {
  if (is_closed_) {
    throw StateError(fmt::format("{}: the window has been freed", where(call)));
  }
  if (context_->engine().is_forked()) {
    throw StateError(
        fmt::format("{}: expected the process of that rank, found a fork of it", where(call)));
  }
}

void WindowCore::check_tensor(const BufferView& tensor, std::string_view call) const {
  if (tensor.count != tensor_.count || tensor.dtype != tensor_.dtype ||
      (tensor.data == nullptr && tensor.count > 0)) {
    throw InvalidArgument(
        fmt::format("{}: expected a tensor like the window's, {}[{}], found {}[{}]{}", where(call),
                    bluefog::name_of(tensor_.dtype), tensor_.count, bluefog::name_of(tensor.dtype),
                    tensor.count, tensor.data == nullptr ? " at a null pointer" : ""));
  }
}

void WindowCore::check_apart(const BufferView& output, std::string_view call) const {
  const auto* const own = static_cast<const std::byte*>(tensor_.data);
  const auto* const out = static_cast<const std::byte*>(output.data);
  if (own != out && own < out + output.bytes() && out < own + tensor_.bytes()) {
    throw InvalidArgument(fmt::format(
        "{}: expected the output to be the window's tensor or apart from it, found them "
        "overlapping",
        where(call)));
  }
}

void WindowCore::check_weight(double weight, std::string_view call) const {
  if (!std::isfinite(weight)) {
    throw InvalidArgument(
        fmt::format("{}: expected finite weights, found {}", where(call), weight));
  }
}

void WindowCore::check_some_of(const std::vector<WeightedRank>& some,
                               const std::vector<WeightedRank>& all, std::string_view call,
                               std::string_view role) const {
  for (std::size_t i = 0; i < some.size(); ++i) {
    check_weight(some[i].weight, call);
    const auto is_same = [&](const WeightedRank& other) { return other.rank == some[i].rank; };
    if (std::ranges::none_of(all, is_same)) {
      throw InvalidArgument(fmt::format("{}: expected {} of the window, {}, found rank {}",
                                        where(call), role, ranks_of(all), some[i].rank));
    }
    if (std::ranges::count_if(some, is_same) > 1) {
      throw InvalidArgument(fmt::format("{}: rank {} is named twice", where(call), some[i].rank));
    }
  }
}

void WindowCore::check_lockable(int rank) const {
  if (rank < 0 || rank >= context_->size()) {
    throw InvalidArgument(fmt::format("{}: expected ranks of 0 … {}, found {}", where("mutex"),
                                      context_->size() - 1, rank));
  }
}

}  // namespace bluefog::ops
