#include "ops/hierarchical_neighbor_allreduce.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "ops/collectives.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/values.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::testing {
namespace {

using ::testing::HasSubstr;
using Plan = std::shared_ptr<const NeighborPlan>;

Plan share(NeighborPlan plan) { return std::make_shared<const NeighborPlan>(std::move(plan)); }

Plan machine_plan(const Context& context, const MixingMatrix& w) {
  return share(w.plan_for(context.machines().machine_of(context.rank())));
}

/// The equation of the documentation in float64.
std::vector<double> dense_oracle(const Context& context, const MixingMatrix& w, Dtype dtype,
                                 std::size_t count) {
  const MachineLayout& machines = context.machines();
  std::vector<double> result(count);
  for (int machine = 0; machine < machines.machine_count(); ++machine) {
    const double weight = w.weight(machines.machine_of(context.rank()), machine);
    const auto& ranks = machines.ranks_of(machine);
    for (const int rank : ranks) {
      const auto part = small_integers(dtype, count, rank).to_doubles();
      for (std::size_t k = 0; k < count; ++k) {
        result[k] += weight / static_cast<double>(ranks.size()) * part[k];
      }
    }
  }
  return result;
}

double tolerance_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::Float16:
      return 4e-3;
    case Dtype::BFloat16:
      return 3e-2;
    case Dtype::Float32:
      return 1e-6;
    default:
      return 1e-14;
  }
}

/// All ranks of a machine hold the same bits.
void expect_equal_in_machine(Context& context, Values& values) {
  std::vector<std::byte> all;
  ops::allgather(
      context,
      {values.bytes().data(), static_cast<std::int64_t>(values.bytes().size()), Dtype::UInt8},
      [&](const std::vector<std::int64_t>& counts) {
        all.resize(static_cast<std::size_t>(counts[0]) * counts.size());
        return BufferView{.data = all.data(),
                          .count = static_cast<std::int64_t>(all.size()),
                          .dtype = Dtype::UInt8};
      });
  const std::size_t each = all.size() / static_cast<std::size_t>(context.size());
  const MachineLayout& machines = context.machines();
  for (const int other : machines.ranks_of(machines.machine_of(context.rank()))) {
    const auto begin =
        all.begin() + static_cast<std::ptrdiff_t>(each * static_cast<std::size_t>(other));
    EXPECT_TRUE(
        std::equal(begin, begin + static_cast<std::ptrdiff_t>(each), values.bytes().begin()))
        << "rank " << other;
  }
}

void average_and_check(Context& context, const MixingMatrix& w, Dtype dtype, std::size_t count,
                       const ops::HierarchicalOptions& options = {}) {
  const auto expected = dense_oracle(context, w, dtype, count);
  const Plan plan = machine_plan(context, w);
  Values values = small_integers(dtype, count, context.rank());
  Values input = values;
  Values output(dtype, count);
  ops::hierarchical_neighbor_allreduce(context, ConstBufferView(input.view()), output.view(), plan,
                                       options);
  EXPECT_EQ(input, values) << "the input of a call out of place";
  ops::hierarchical_neighbor_allreduce(context, values.view(), plan, options);
  EXPECT_EQ(output, values) << "out of place and in place";
  for (std::size_t k = 0; k < count; ++k) {
    ASSERT_NEAR(values[k], expected[k], tolerance_of(dtype) * (1 + std::fabs(expected[k])))
        << name_of(dtype) << "[" << count << "] at " << k;
  }
  expect_equal_in_machine(context, values);
}

std::vector<MixingMatrix> graphs_of_machines(const Context& context) {
  const int machines = context.machines().machine_count();
  return {topology::exponential(machines), topology::ring(machines), topology::star(machines),
          MixingMatrix::identity(machines)};
}

void all_sizes_and_dtypes(Context& context) {
  for (const MixingMatrix& w : graphs_of_machines(context)) {
    for (const std::size_t count :
         {std::size_t{0}, std::size_t{1}, std::size_t{1000}, std::size_t{2049}, large(100'003)}) {
      average_and_check(context, w, Dtype::Float32, count);
    }
    for (const Dtype dtype : kFloatingDtypes) {
      average_and_check(context, w, dtype, 5000);
    }
  }
}

TEST(HierarchicalNeighborAllreduce, AgreesWithTheDenseMatrix) {
  // Two hosts of three ranks hold two and one: machines of different sizes.
  on_ranks([](Context& context) { all_sizes_and_dtypes(context); });
}

TEST(HierarchicalNeighborAllreduce, VirtualMachines) {
  Ranks ranks{.at_least = 4, .at_most = 8, .layouts = {Layout::OneHost, Layout::NetworkOnly}};
  ranks.settings = [](Settings& settings, int /*rank*/) { settings.nodes_per_machine = 2; };
  on_ranks(ranks, [](Context& context) {
    EXPECT_EQ(context.machines().machine_count(), context.size() / 2);
    all_sizes_and_dtypes(context);
  });
}

TEST(HierarchicalNeighborAllreduce, MachinesOfAllSizes) {
  Ranks ranks{.at_least = 3, .at_most = 8, .layouts = {Layout::OneHost}};
  ranks.pretends_hosts = true;
  // 0 | 1 2 | the rest
  ranks.settings = [](Settings& settings, int rank) {
    settings.host_id = rank == 0 ? "a" : rank < 3 ? "b" : "c";
  };
  on_ranks(ranks, [](Context& context) { all_sizes_and_dtypes(context); });
}

TEST(HierarchicalNeighborAllreduce, NonblockingInAnyOrderOfWaits) {
  on_ranks([](Context& context) {
    const MixingMatrix w = topology::ring(context.machines().machine_count());
    const Plan plan = machine_plan(context, w);
    std::vector<Values> values;
    for (std::size_t i = 0; i < 8; ++i) {
      values.push_back(small_integers(Dtype::Float32, 1 + i * 900, context.rank()));
    }
    std::vector<Work> works;
    for (Values& value : values) {
      works.push_back(
          ops::hierarchical_neighbor_allreduce_nonblocking(context, value.view(), plan));
    }
    Values input = small_integers(Dtype::Float64, 9000, context.rank());
    Values output(Dtype::Float64, 9000);
    Work apart = ops::hierarchical_neighbor_allreduce_nonblocking(
        context, ConstBufferView(input.view()), output.view(), plan);
    for (std::size_t i = works.size(); i-- > 0;) {
      works[i].wait();
      const auto expected = dense_oracle(context, w, Dtype::Float32, values[i].count());
      for (std::size_t k = 0; k < expected.size(); ++k) {
        ASSERT_NEAR(values[i][k], expected[k], 1e-6 * (1 + std::fabs(expected[k])));
      }
    }
    apart.wait();
    EXPECT_EQ(input, small_integers(Dtype::Float64, 9000, context.rank()));
    const auto expected = dense_oracle(context, w, Dtype::Float64, 9000);
    for (std::size_t k = 0; k < expected.size(); ++k) {
      ASSERT_NEAR(output[k], expected[k], 1e-14 * (1 + std::fabs(expected[k])));
    }
  });
}

TEST(HierarchicalNeighborAllreduce, PlansThatDoNotFitAreAnErrorOnEveryRank) {
  Ranks ranks{.at_least = 4, .at_most = 8};
  ranks.settings = [](Settings& settings, int /*rank*/) { settings.nodes_per_machine = 2; };
  ranks.layouts = {Layout::OneHost};
  on_ranks(ranks, [](Context& context) {
    const int machines = context.machines().machine_count();
    const int machine = context.machines().machine_of(context.rank());
    NeighborPlan plan = NeighborPlan::alone(machine, machines);
    if (context.rank() == 1) {
      plan.destinations = {{.rank = 1}};  // known to one rank of one machine only
    }
    std::vector<float> values(10, 1.0F);
    try {
      ops::hierarchical_neighbor_allreduce(context, {.data = values.data(), .count = 10},
                                           share(plan), {.check = ops::PlanCheck::Checked});
      ADD_FAILURE() << "expected an error";
    } catch (const MismatchError& error) {
      EXPECT_THAT(error.what(), HasSubstr("hierarchical_neighbor_allreduce"));
    }
    average_and_check(context, topology::ring(machines), Dtype::Float32, 3000,
                      {.check = ops::PlanCheck::Checked});
  });
}

TEST(HierarchicalNeighborAllreduce, WeightsThatDifferWithinAMachineAreAnErrorOnEveryRank) {
  Ranks ranks{.at_least = 4, .at_most = 8};
  ranks.settings = [](Settings& settings, int /*rank*/) { settings.nodes_per_machine = 2; };
  ranks.layouts = {Layout::OneHost};
  on_ranks(ranks, [](Context& context) {
    const int machines = context.machines().machine_count();
    NeighborPlan plan =
        topology::ring(machines).plan_for(context.machines().machine_of(context.rank()));
    plan.self_weight += context.rank() == 1 ? 0.25 : 0.0;
    std::vector<float> values(10, 1.0F);
    const BufferView buffer{.data = values.data(), .count = 10};
    try {
      ops::hierarchical_neighbor_allreduce(context, buffer, share(plan),
                                           {.check = ops::PlanCheck::Checked});
      ADD_FAILURE() << "expected an error";
    } catch (const MismatchError& error) {
      EXPECT_THAT(error.what(), HasSubstr("ranks 0 and 1 of machine 0 use different ones"));
    }
    EXPECT_EQ(values, std::vector<float>(10, 1.0F));
  });
}

TEST(HierarchicalNeighborAllreduce, WrongArgumentsAreRefused) {
  on_ranks([](Context& context) {
    std::vector<std::int32_t> integers(4);
    std::vector<float> values(5);
    const int machines = context.machines().machine_count();
    const Plan plan = machine_plan(context, topology::ring(machines));
    EXPECT_THROW(ops::hierarchical_neighbor_allreduce(
                     context, {.data = integers.data(), .count = 4, .dtype = Dtype::Int32}, plan),
                 InvalidArgument);
    const BufferView buffer{.data = values.data(), .count = 4};
    EXPECT_THROW(ops::hierarchical_neighbor_allreduce(context, buffer, nullptr), InvalidArgument);
    EXPECT_THROW(
        ops::hierarchical_neighbor_allreduce(context, ConstBufferView(buffer),
                                             {.data = values.data() + 1, .count = 4}, plan),
        InvalidArgument);
    EXPECT_THROW(ops::hierarchical_neighbor_allreduce(context, ConstBufferView(buffer),
                                                      {.data = values.data(), .count = 3}, plan),
                 InvalidArgument);
    try {
      ops::hierarchical_neighbor_allreduce(context, buffer,
                                           share(NeighborPlan::alone(0, machines + 3)));
      ADD_FAILURE() << "expected an error";
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr("machine"));
    }
  });
}

}  // namespace
}  // namespace bluefog::testing
