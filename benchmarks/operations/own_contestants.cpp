#include <cstring>
#include <memory>
#include <utility>

#include "benchmarks/operations/contestant.hpp"
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
          .call = [&context, schedule, step = std::int64_t{0}](const BufferView& buffer) mutable {
            ops::neighbor_allreduce(context, buffer, schedule.plan_for(context.rank(), step++));
          }};
}

Contestant window_call(const Setting& setting, bool accumulates) {
  Context& context = setting.context;
  auto memory = std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(setting.count) *
                                                         size_of(setting.dtype));
  const BufferView tensor{
      .data = memory->data(), .count = setting.count, .dtype = setting.dtype, .owner = memory};
  const auto plan = topology::ring(context.size(), topology::RingStyle::Right)
                        .plan_for(context.rank());
  const char* const op = accumulates ? "win_accumulate" : "win_put";
  const std::shared_ptr<ops::Window> window =
      ops::Window::create(context, tensor, plan, {.name = op});
  return {.peer = kOwn, .op = op, .call = [window, memory, accumulates](const BufferView& buffer) {
            if (accumulates) {
              window->accumulate(buffer);
            } else {
              window->put(buffer);
            }
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
  all.push_back({.peer = kOwn,
                 .op = "allreduce",
                 .bus_factor = 2 * (n - 1) / n,
                 .call = [&context](const BufferView& buffer) { ops::allreduce(context, buffer); }});
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
    all.push_back(window_call(setting, false));
    all.push_back(window_call(setting, true));
  }
  return all;
}

Contestant memcpy_contestant(const Setting& setting) {
  auto target = std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(setting.count) *
                                                             size_of(setting.dtype),
                                                         std::byte{1});
  return {.peer = "memcpy", .op = "memcpy", .call = [target](const BufferView& buffer) {
            std::memcpy(target->data(), buffer.data, buffer.bytes());
            asm volatile("" : : "r"(target->data()) : "memory");  // it counts although nobody reads
          }};
}

}  // namespace bluefog::benchmarks
