#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "benchmarks/operations/contestant.hpp"
#include "bluefog_cpp/context/context_core.hpp"
#include "ops/collectives.hpp"
#include "ops/hierarchical_neighbor_allreduce.hpp"
#include "ops/neighbor_allreduce.hpp"
#include "ops/window.hpp"
#include "topology/schedule.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::benchmarks {
namespace {

constexpr const char* kOwn = "bluefog_cpp";

Contestant neighbor_allreduce(Context& context, std::string op, const Schedule& schedule) {
  const auto first = schedule.plan_for(context.rank(), 0);
  return {.peer = kOwn,
          .op = std::move(op),
          .bus_factor = static_cast<double>(first->sources.size()),
          .call =
              [&context, schedule, step = std::int64_t{0}](const BufferView& buffer) mutable {
                ops::neighbor_allreduce(context, buffer, schedule.plan_for(context.rank(), step++));
              },
          .period = static_cast<int>(schedule.period_steps())};
}

/// A window on a tensor of its own.
struct WindowOnTensor {
  WindowOnTensor(const Setting& setting, const char* name)
      : memory(static_cast<std::size_t>(setting.count) * size_of(setting.dtype)) {
    Context& context = setting.context;
    const BufferView tensor{.data = memory.data(), .count = setting.count, .dtype = setting.dtype};
    const auto plan =
        topology::ring(context.size(), topology::RingStyle::Right).plan_for(context.rank());
    window = ops::Window::create(context, tensor, plan, {.name = name});
  }

  std::vector<std::byte> memory;
  std::shared_ptr<ops::Window> window;
};

/// A window that its first use makes, on all ranks in the same round.
class LateWindow {
 public:
  LateWindow(const Setting& setting, const char* name) : setting_(setting), name_(name) {}

  WindowOnTensor& operator*() {
    if (!made_) {
      made_.emplace(setting_, name_);
    }
    return *made_;
  }

 private:
  Setting setting_;
  const char* name_;
  std::optional<WindowOnTensor> made_;
};

template <typename Call>
Contestant window_call(const Setting& setting, const char* op, Call call) {
  return {.peer = kOwn,
          .op = op,
          .memory = 2,  // the tensor, and a source's buffer
          .call = [call, late = std::make_shared<LateWindow>(setting, op)](
                      const BufferView& buffer) { call(*(**late).window, buffer); }};
}

/// Neighbours fetch the window's own tensor, which is rewritten before.
Contestant window_get(const Setting& setting) {
  auto late = std::make_shared<LateWindow>(setting, "win_get");
  return {.peer = kOwn,
          .op = "win_get",
          .memory = 2,
          .call = [late](const BufferView&) { (**late).window->get(); },
          .prepare =
              [late](const BufferView& buffer) {
                std::memcpy((**late).memory.data(), buffer.data, buffer.bytes());
              }};
}

}  // namespace

std::vector<Contestant> own_contestants(const Setting& setting) {
  Context& context = setting.context;
  const int size = context.size();
  const auto n = static_cast<double>(size);
  std::vector<Contestant> all;
  all.push_back(neighbor_allreduce(context, "neighbor_allreduce (exponential)",
                                   topology::static_schedule(topology::exponential(size))));
  all.push_back(neighbor_allreduce(context, "neighbor_allreduce (one-peer)",
                                   topology::one_peer_exponential(size)));
  if (size > 2) {  // of two ranks all three are the same graph
    all.push_back(neighbor_allreduce(context, "neighbor_allreduce (ring)",
                                     topology::static_schedule(topology::ring(size))));
  }
  all.push_back(
      {.peer = kOwn,
       .op = "allreduce",
       .bus_factor = 2 * (n - 1) / n,
       .call = [&context](const BufferView& buffer) { ops::allreduce(context, buffer); }});
  if (context.core().shared_memory() && context.hosts().machine_count() == 1) {
    // The same calls, which find their buffers where all ranks reach them.
    std::vector<Contestant> shared = all;
    if (size == 2) {
      std::erase_if(shared, [](const Contestant& one) { return one.op.ends_with("(one-peer)"); });
    }
    for (Contestant& contestant : shared) {
      contestant.op += ", shared buffers";
      contestant.takes_shared_buffers = true;
      all.push_back(std::move(contestant));
    }
  }
  const MachineLayout& machines = context.machines();
  if (machines.machine_count() > 1) {
    const auto plan = std::make_shared<const NeighborPlan>(
        topology::ring(machines.machine_count()).plan_for(machines.machine_of(context.rank())));
    all.push_back({.peer = kOwn,
                   .op = "hierarchical_neighbor_allreduce (ring of machines)",
                   .call = [&context, plan](const BufferView& buffer) {
                     ops::hierarchical_neighbor_allreduce(context, buffer, plan);
                   }});
  }
  if (size > 1) {
    all.push_back(
        window_call(setting, "win_put",
                    [](ops::Window& window, const BufferView& buffer) { window.put(buffer); }));
    all.push_back(window_call(
        setting, "win_accumulate",
        [](ops::Window& window, const BufferView& buffer) { window.accumulate(buffer); }));
    all.push_back(window_get(setting));
  }
  return all;
}

Contestant memcpy_contestant(const Setting& setting) {
  auto target = std::make_shared<std::vector<std::byte>>();
  const std::size_t bytes = static_cast<std::size_t>(setting.count) * size_of(setting.dtype);
  return {.peer = "memcpy",
          .op = "memcpy",
          .memory = 1,
          .call = [target, bytes](const BufferView& buffer) {
            target->resize(bytes);
            std::memcpy(target->data(), buffer.data, buffer.bytes());
            asm volatile("" : : "r"(target->data()) : "memory");  // it counts although nobody reads
          }};
}

}  // namespace bluefog::benchmarks
