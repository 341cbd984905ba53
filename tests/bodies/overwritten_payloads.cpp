#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bluefog_cpp/settings.hpp"
#include "ops/hierarchical_neighbor_allreduce.hpp"
#include "ops/neighbor_allreduce.hpp"
#include "ops/pair_gossip.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/sum_contract.hpp"
#include "tests/support/values.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::testing {
namespace {

using Average = std::function<void(Context&, const BufferView&, const std::string& name)>;

/// Averages of all ranks over what is being sent. Sockets take any number of bytes of it: they are
/// small (but not below a segment of the loopback, where each waits for timers of the kernel), and
/// the names in the heads of the messages have many lengths.
void expect_average_of_all(Ranks ranks, const Average& average) {
  ranks.settings = [](Settings& settings, int) { settings.tcp_socket_bytes = 50'001; };
  on_ranks(ranks, [&](Context& context) {
    const auto size = static_cast<std::size_t>(context.size());
    for (const Dtype dtype : kFloatingDtypes) {
      std::vector<Values> inputs;
      for (int rank = 0; rank < context.size(); ++rank) {
        inputs.push_back(small_integers(dtype, large(300'001), rank));
      }
      const Values expected =
          expected_weighted_sum(inputs, std::vector<double>(size, 1.0 / context.size()));
      for (std::size_t call = 0; call < 12; ++call) {
        Values own = inputs[static_cast<std::size_t>(context.rank())];
        average(context, own.view(), std::string(call, 'n'));
        ASSERT_EQ(own, expected) << name_of(dtype) << ", call " << call;
      }
    }
  });
}

std::shared_ptr<const NeighborPlan> all_of(int size, int rank) {
  return std::make_shared<const NeighborPlan>(topology::fully_connected(size).plan_for(rank));
}

TEST(OverwrittenPayloads, OfNeighborAllreduce) {
  expect_average_of_all({.at_least = 2, .thread_counts = {2, 4}, .layouts = {Layout::NetworkOnly}},
                        [](Context& context, const BufferView& own, const std::string& name) {
                          ops::neighbor_allreduce(
                              context, own, all_of(context.size(), context.rank()), {.name = name});
                        });
}

TEST(OverwrittenPayloads, OfHierarchicalNeighborAllreduce) {
  expect_average_of_all(
      {.at_least = 4, .at_most = 4, .thread_counts = {4}, .layouts = {Layout::TwoHosts}},
      [](Context& context, const BufferView& own, const std::string& name) {
        const MachineLayout& machines = context.machines();
        ops::hierarchical_neighbor_allreduce(
            context, own, all_of(machines.machine_count(), machines.machine_of(context.rank())),
            {.name = name});
      });
}

TEST(OverwrittenPayloads, OfPairGossip) {
  expect_average_of_all(
      {.at_least = 2, .at_most = 2, .thread_counts = {2}, .layouts = {Layout::NetworkOnly}},
      [](Context& context, const BufferView& own, const std::string& name) {
        ops::pair_gossip(context, own, 1 - context.rank(), {.name = name});
      });
}

}  // namespace
}  // namespace bluefog::testing
