#include "ops/window.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <new>
#include <utility>

#include "ops/window/window_arguments.hpp"
#include "ops/window/window_call.hpp"
#include "ops/window/window_core.hpp"

namespace bluefog::ops {
namespace {

// Checks in the caller's thread: the window's own, which may make the call, holds other mutexes.
void check_put(WindowCore& core, const BufferView& tensor, const WindowPutOptions& options,
               std::string_view call) {
  core.check_open(call);
  const WindowIdentity& window = core.identity();
  check_tensor(window, tensor, call);
  check_weight(window, options.self_weight, call);
  check_code(window, options.compression.get(), call);
  const auto& all = window.plan().destinations;
  if (options.destinations) {
    check_some_of(window, *options.destinations, all, call, "destinations");
  }
  if (options.exclusion == Exclusion::Mutex) {
    core.mutexes().check_not_held(options.destinations ? *options.destinations : all, call);
  }
}

void check_get(WindowCore& core, const WindowGetOptions& options) {
  core.check_open("win_get");
  const auto& all = core.identity().plan().sources;
  if (options.sources) {
    check_some_of(core.identity(), *options.sources, all, "win_get", "sources");
  }
  if (options.exclusion == Exclusion::Mutex) {
    core.mutexes().check_not_held(options.sources ? *options.sources : all, "win_get");
  }
}

/// The tasks hold what they use: a wait may end before its task.
auto put_task(const std::shared_ptr<WindowCore>& core, BufferView tensor, StoreMode mode,
              const WindowPutOptions& options, const std::shared_ptr<DeviceTensors>& tensors) {
  return [core, tensor = std::move(tensor), mode, options, tensors] {
    core->store(tensor, mode, options, tensors.get(), WindowCore::Caller::GoesOn);
  };
}

auto get_task(const std::shared_ptr<WindowCore>& core, const WindowGetOptions& options,
              const std::shared_ptr<DeviceTensors>& tensors) {
  return [core, options, tensors] { core->fetch(options, tensors.get()); };
}

std::string_view name_of(StoreMode mode) {
  return mode == StoreMode::Add ? "win_accumulate" : "win_put";
}

void store(const std::shared_ptr<WindowCore>& core, const BufferView& tensor, StoreMode mode,
           const WindowPutOptions& options) {
  check_put(*core, tensor, options, name_of(mode));
  const auto tensors = core->tensors().note_put(name_of(mode), tensor, options);
  core->tasks().run(
      [&] {
        WindowTensors::ordered_if_it_fails(tensors.get(), [&] {
          core->store(tensor, mode, options, tensors.get(), WindowCore::Caller::Waits);
        });
      },
      [&] { return put_task(core, tensor, mode, options, tensors); });
  WindowTensors::order_streams(tensors.get());
}

Work start_storing(const std::shared_ptr<WindowCore>& core, BufferView tensor, StoreMode mode,
                   const WindowPutOptions& options) {
  check_put(*core, tensor, options, name_of(mode));
  const auto tensors = core->tensors().note_put(name_of(mode), tensor, options);
  return core->start(tensors, put_task(core, std::move(tensor), mode, options, tensors));
}

}  // namespace

// ---- locks

WindowLock::WindowLock(std::shared_ptr<WindowCore> core, std::span<const int> ranks)
    : core_(std::move(core)) {
  begin(core_->identity().begin_call("mutex"));
  try {
    take(ranks);
  } catch (const std::exception& e) {
    call_->fail(e);
    release();
    throw;
  }
}

void WindowLock::begin(WindowCall call) {
  static_assert(sizeof(WindowCall) <= kCallBytes &&
                alignof(WindowCall) <= alignof(std::max_align_t));
  call_ = new (room_.data()) WindowCall(std::move(call));
}

void WindowLock::take(std::span<const int> ranks) {
  for (const int rank : ranks) {
    taken_.push_back({.rank = rank});
    try {
      taken_.back().ticket = core_->mutexes().take(rank, *call_);
    } catch (...) {
      taken_.pop_back();
      throw;
    }
  }
  call_->hold_mutexes(ranks);
}

WindowLock::WindowLock(WindowLock&& other) noexcept { *this = std::move(other); }

WindowLock::~WindowLock() { release(); }

WindowLock& WindowLock::operator=(WindowLock&& other) noexcept {
  if (this != &other) {
    release();
    core_ = std::move(other.core_);
    if (other.call_ != nullptr) {
      begin(std::move(*other.call_));
      std::destroy_at(std::exchange(other.call_, nullptr));
    }
    taken_ = std::move(other.taken_);
    other.taken_.clear();
  }
  return *this;
}

void WindowLock::release() noexcept {
  if (core_) {
    for (const Taken& taken : taken_) {
      core_->mutexes().release(taken.rank, taken.ticket);
    }
  }
  taken_.clear();
  if (call_ != nullptr) {
    std::destroy_at(std::exchange(call_, nullptr));
  }
}

WindowLock Window::lock(std::vector<int> ranks) {
  core_->check_open("mutex");
  for (const int rank : ranks) {
    check_lockable(core_->identity(), rank);
  }
  std::ranges::sort(ranks);
  const auto repeated = std::ranges::unique(ranks);
  ranks.erase(repeated.begin(), repeated.end());
  return {core_, std::span<const int>(ranks)};
}

WindowLock Window::lock_self() {
  core_->check_open("mutex");
  return {core_, std::span(&core_->identity().plan().rank, 1)};
}

// ---- life

std::shared_ptr<Window> Window::create(Context& context, BufferView tensor,
                                       const NeighborPlan& plan, const WindowOptions& options) {
  auto core = std::make_shared<WindowCore>(context, std::move(tensor), plan, options);
  core->open(options.fill);
  return std::shared_ptr<Window>(new Window(std::move(core)));
}

Window::~Window() { core_->abandon(); }

void Window::free() { core_->close(); }

// ---- data

void Window::put(BufferView tensor, const WindowPutOptions& options) {
  store(core_, tensor, StoreMode::Replace, options);
}

void Window::accumulate(BufferView tensor, const WindowPutOptions& options) {
  store(core_, tensor, StoreMode::Add, options);
}

void Window::get(const WindowGetOptions& options) {
  check_get(*core_, options);
  const auto tensors = core_->tensors().note_own("win_get", options.stream);
  core_->tasks().run(
      [&] {
        WindowTensors::ordered_if_it_fails(tensors.get(),
                                           [&] { core_->fetch(options, tensors.get()); });
      },
      [&] { return get_task(core_, options, tensors); });
  WindowTensors::order_streams(tensors.get());
}

Work Window::put_nonblocking(BufferView tensor, const WindowPutOptions& options) {
  return start_storing(core_, std::move(tensor), StoreMode::Replace, options);
}

Work Window::accumulate_nonblocking(BufferView tensor, const WindowPutOptions& options) {
  return start_storing(core_, std::move(tensor), StoreMode::Add, options);
}

Work Window::get_nonblocking(const WindowGetOptions& options) {
  check_get(*core_, options);
  const auto tensors = core_->tensors().note_own("win_get", options.stream);
  return core_->start(tensors, get_task(core_, options, tensors));
}

void Window::update(const WindowUpdateOptions& options) {
  core_->check_open("win_update");
  const WindowIdentity& window = core_->identity();
  if (options.weights) {
    check_weight(window, options.weights->self_weight, "win_update");
    check_some_of(window, options.weights->sources, window.plan().sources, "win_update", "sources");
  }
  if (options.output) {
    check_tensor(window, *options.output, "win_update");
    check_apart(window, *options.output, "win_update");
  }
  core_->update(options);
}

void Window::update_then_collect(Exclusion exclusion, WindowStream stream) {
  WindowUpdateOptions options{.reset = BufferReset::Zero, .exclusion = exclusion, .stream = stream};
  options.weights.emplace();
  for (const WeightedRank& source : core_->identity().plan().sources) {
    options.weights->sources.push_back({.rank = source.rank});
  }
  update(options);
}

void Window::fill(WindowFill fill, WindowStream stream) {
  core_->check_open("win_fill");
  core_->fill(fill, stream);
}

void Window::publish(WindowStream stream) {
  core_->check_open("win_publish");
  core_->publish(stream);
}

std::vector<std::pair<int, std::int64_t>> Window::versions() const {
  core_->check_open("versions");
  std::vector<std::pair<int, std::int64_t>> versions;
  for (const WeightedRank& source : core_->identity().plan().sources) {
    versions.emplace_back(source.rank, core_->own().version(versions.size()));
  }
  return versions;
}

std::int64_t Window::stamp_of(int source) const {
  core_->check_open("stamp_of");
  const auto& sources = core_->identity().sources();
  const auto found = std::ranges::find(sources, source);
  if (found == sources.end()) {
    throw InvalidArgument(fmt::format("{}: expected a rank that it hears, found rank {}",
                                      core_->identity().where("stamp_of"), source));
  }
  return core_->own().stamp(static_cast<std::size_t>(found - sources.begin()));
}

void Window::announce(std::int64_t stamp) {
  core_->check_open("win_announce");
  core_->announce(stamp);
}

bool Window::wait_for(const std::vector<WeightedRank>& sources, std::int64_t stamp,
                      std::optional<std::chrono::nanoseconds> longest) {
  constexpr std::string_view kCall = "win_wait";
  core_->check_open(kCall);
  const WindowIdentity& window = core_->identity();
  check_some_of(window, sources, window.plan().sources, kCall, "sources");
  if (longest && longest->count() < 0) {
    throw InvalidArgument(fmt::format("{}: expected a time of at least 0 to wait, found {} s",
                                      window.where(kCall),
                                      std::chrono::duration<double>(*longest).count()));
  }
  return core_->wait_for(sources, stamp, longest);
}

double Window::associated_weight() const {
  core_->check_open("associated_weight");
  return core_->own().mass().load();
}

void Window::set_associated_weight(double weight) {
  core_->check_open("set_associated_weight");
  check_weight(core_->identity(), weight, "set_associated_weight");
  core_->own().mass().store(weight);
}

void Window::set_associated_weight(AssociatedWeight state) noexcept {
  core_->set_associated_weight(state);
}

const std::string& Window::name() const noexcept { return core_->identity().name(); }
const BufferView& Window::tensor() const noexcept { return core_->identity().tensor(); }
const NeighborPlan& Window::plan() const noexcept { return core_->identity().plan(); }

}  // namespace bluefog::ops
