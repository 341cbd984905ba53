// Averages of all operations: what equal values and large ones become, and with which bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "ops/collectives.hpp"
#include "ops/hierarchical_neighbor_allreduce.hpp"
#include "ops/neighbor_allreduce.hpp"
#include "ops/pair_gossip.hpp"
#include "ops/window.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/sum_contract.hpp"
#include "tests/support/values.hpp"

namespace bluefog::testing {
namespace {

/// A row of `number` weights that sum to 1: equal ones for seed 0, else random ones.
std::vector<double> row_of(std::size_t number, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<double> row(number, 1.0);
  for (double& weight : row) {
    weight = seed == 0 ? 1.0 : static_cast<double>(random() % 1000 + 1);
  }
  const double sum = std::accumulate(row.begin(), row.end(), 0.0);
  for (double& weight : row) {
    weight /= sum;
  }
  return row;
}

/// The plan of `rank` in a graph in which each rank hears the `degree` ranks before it, with
/// weights of its own: its row and its column.
NeighborPlan circulant(int rank, int size, int degree, unsigned seed) {
  const auto row = row_of(static_cast<std::size_t>(degree) + 1,
                          seed == 0 ? 0 : 100 * seed + static_cast<unsigned>(rank));
  NeighborPlan plan = NeighborPlan::alone(rank, size);
  plan.self_weight = row[0];
  for (int shift = 1; shift <= degree; ++shift) {
    plan.sources.push_back({(rank - shift + size) % size, row[static_cast<std::size_t>(shift)]});
    plan.destinations.push_back({(rank + shift) % size, 1.0});
  }
  std::ranges::sort(plan.sources, {}, &WeightedRank::rank);
  std::ranges::sort(plan.destinations, {}, &WeightedRank::rank);
  return plan;
}

/// The operands of a plan's row by rising rank, and their weights.
struct Row {
  std::vector<Values> operands;
  std::vector<double> weights;
};

Row row_of(const NeighborPlan& plan, const std::function<Values(int rank)>& value_of) {
  std::vector<WeightedRank> all = plan.sources;
  all.push_back({plan.rank, plan.self_weight});
  std::ranges::sort(all, {}, &WeightedRank::rank);
  Row row;
  for (const auto& [rank, weight] : all) {
    row.operands.push_back(value_of(rank));
    row.weights.push_back(weight);
  }
  return row;
}

/// Values of any size and sign, the same on all ranks.
Values same_values(Dtype dtype, std::size_t count) {
  std::mt19937_64 random(5);
  Values values(dtype, count);
  const int range = dtype == Dtype::Float16 ? 10 : 60;
  for (std::size_t k = 0; k < count; ++k) {
    const double fraction = static_cast<double>(random() % 1'000'000) / 999'983.0 - 0.5;
    values.set(k, std::ldexp(fraction, static_cast<int>(random() % 120) % range - range / 2));
  }
  values.set(0, -0.0);
  return values;
}

/// The averages that an operation forms of `own`, in place, by plan `plan`.
using Average = std::function<void(Context&, Values& own, const NeighborPlan& plan)>;

void by_window(Context& context, Values& own, const NeighborPlan& plan) {
  const auto window = ops::Window::create(
      context, own.view(), plan, {.name = "w", .associated_weight = ops::AssociatedWeight::On});
  window->put(own.view());
  ops::barrier(context);
  window->update();
  window->free();
}

void by_neighbors(Context& context, Values& own, const NeighborPlan& plan) {
  ops::neighbor_allreduce(context, own.view(), std::make_shared<const NeighborPlan>(plan));
}

/// In memory that ranks share: sums of two ranks then lie there.
void by_neighbors_in_shared_memory(Context& context, Values& own, const NeighborPlan& plan) {
  const std::size_t bytes = own.bytes().size();
  const auto memory = context.allocate_shared(bytes);
  std::memcpy(memory.get(), own.bytes().data(), bytes);
  BufferView view = own.view();
  view.data = memory.get();
  view.owner = memory;
  ops::neighbor_allreduce(context, view, std::make_shared<const NeighborPlan>(plan));
  std::memcpy(own.bytes().data(), memory.get(), bytes);
}

const std::vector<std::pair<const char*, Average>> kByPlan{
    {"neighbor_allreduce", by_neighbors},
    {"neighbor_allreduce in shared memory", by_neighbors_in_shared_memory},
    {"window", by_window}};

/// Lengths of short messages, of several pieces, and of sums in shared memory.
std::vector<std::size_t> counts(Dtype dtype) { return {1, 1003, large(300'000) / size_of(dtype)}; }

TEST(Averages, EqualValuesStayThatValueForEveryRow) {
  on_ranks({.at_least = 2}, [](Context& context) {
    for (const Dtype dtype : kFloatingDtypes) {
      for (int degree = 1; degree < context.size(); ++degree) {
        const std::size_t count = degree == 1 ? counts(dtype)[2] : 1003;
        const Values value = same_values(dtype, count);
        for (unsigned seed = 0; seed < 3; ++seed) {
          const NeighborPlan plan = circulant(context.rank(), context.size(), degree, seed);
          for (const auto& [name, average] : kByPlan) {
            Values own = value;
            average(context, own, plan);
            ASSERT_EQ(own, value) << name << ", " << name_of(dtype) << ", degree " << degree;
          }
        }
      }
    }
  });
}

TEST(Averages, EqualValuesStayThatValueInCollectives) {
  on_ranks([](Context& context) {
    for (const Dtype dtype : kFloatingDtypes) {
      for (const std::size_t count : counts(dtype)) {
        const Values value = same_values(dtype, count);
        for (const ops::Scope scope : {ops::Scope::Global, ops::Scope::Machine}) {
          Values own = value;
          ops::allreduce(context, own.view(), {.scope = scope});
          ASSERT_EQ(own, value) << "allreduce, " << name_of(dtype) << "[" << count << "]";
        }
        const int machines = context.machines().machine_count();
        const int machine = context.machines().machine_of(context.rank());
        for (int degree = 0; degree < machines; ++degree) {
          Values own = value;
          ops::hierarchical_neighbor_allreduce(
              context, own.view(),
              std::make_shared<const NeighborPlan>(circulant(machine, machines, degree, 1)));
          ASSERT_EQ(own, value) << "hierarchical, " << name_of(dtype) << "[" << count << "]";
        }
      }
    }
  });
}

TEST(Averages, EqualValuesStayThatValueInGossip) {
  on_ranks({.at_least = 2}, [](Context& context) {
    const int target = context.rank() ^ 1;
    if (target >= context.size()) {
      return;
    }
    for (const Dtype dtype : kFloatingDtypes) {
      for (unsigned seed = 0; seed < 5; ++seed) {
        const auto row =
            row_of(2, seed == 0 ? 0 : 100 * seed + static_cast<unsigned>(context.rank()));
        const Values value = same_values(dtype, 1003);
        Values own = value;
        ops::pair_gossip(context, own.view(), target,
                         {.self_weight = row[0], .pair_weight = row[1]});
        ASSERT_EQ(own, value) << name_of(dtype) << ", weights " << row[0] << " and " << row[1];
      }
    }
  });
}

/// Two layouts and all transports are compared with one contract, and so with each other.
TEST(Averages, UnlikeValuesHaveTheBitsOfTheContract) {
  on_ranks({.at_least = 2}, [](Context& context) {
    for (const Dtype dtype : kFloatingDtypes) {
      for (const int degree : {1, context.size() - 1}) {
        const std::size_t count = degree == 1 ? counts(dtype)[2] : 1003;
        const auto value_of = [&](int rank) { return thirds(dtype, count, rank); };
        for (unsigned seed = 0; seed < 2; ++seed) {
          const NeighborPlan plan = circulant(context.rank(), context.size(), degree, seed);
          const Row row = row_of(plan, value_of);
          const Values expected = expected_weighted_sum(row.operands, row.weights);
          for (const auto& [name, average] : kByPlan) {
            Values own = value_of(context.rank());
            average(context, own, plan);
            ASSERT_EQ(own, expected) << name << ", " << name_of(dtype) << ", degree " << degree;
          }
        }
      }
    }
  });
}

/// Each rank has the same row: all of them get the same bits, as after an all-reduce.
TEST(Averages, RanksWithTheSameRowAgreeToTheBit) {
  on_ranks({.at_least = 2}, [](Context& context) {
    NeighborPlan plan = circulant(context.rank(), context.size(), context.size() - 1, 0);
    Values own = thirds(Dtype::Float32, 1003, context.rank());
    by_neighbors(context, own, plan);
    const Values mine = own;
    ops::broadcast(context, own.view(), 0);
    EXPECT_EQ(own, mine);
    if (context.rank() < 2) {
      Values pair = thirds(Dtype::Float32, 1003, context.rank());
      const std::vector<Values> both{thirds(Dtype::Float32, 1003, 0),
                                     thirds(Dtype::Float32, 1003, 1)};
      ops::pair_gossip(context, pair.view(), 1 - context.rank());
      EXPECT_EQ(pair, expected_weighted_sum(both, std::vector<double>{0.5, 0.5}));
    }
  });
}

TEST(Averages, WeightsOfPushSumStayOneWhereRowsSumToOne) {
  on_ranks({.at_least = 2}, [](Context& context) {
    const NeighborPlan plan = circulant(context.rank(), context.size(), context.size() - 1, 1);
    Values own = same_values(Dtype::Float64, 3);
    const auto window = ops::Window::create(
        context, own.view(), plan, {.name = "w", .associated_weight = ops::AssociatedWeight::On});
    for (int round = 0; round < 10; ++round) {
      window->put(own.view());
      ops::barrier(context);
      window->update();
      EXPECT_EQ(window->associated_weight(), 1.0);
      ops::barrier(context);
    }
    window->free();
  });
}

/// `values[rank % 3]` on each rank, in every element.
Values spread(Dtype dtype, int rank, const std::vector<double>& values) {
  const std::vector<double> all(1003, values[static_cast<std::size_t>(rank) % values.size()]);
  return {dtype, all};
}

/// The mean is finite, sums and differences on the way are not.
TEST(Averages, LargeValuesDoNotOverflow) {
  on_ranks({.at_least = 2}, [](Context& context) {
    const double infinity = std::numeric_limits<double>::infinity();
    const int size = context.size();
    const NeighborPlan plan = circulant(context.rank(), size, size - 1, 0);
    const int machines = context.machines().machine_count();
    const auto machine_plan = std::make_shared<const NeighborPlan>(
        circulant(context.machines().machine_of(context.rank()), machines, machines - 1, 0));
    for (const auto& [dtype, largest] :
         {std::pair{Dtype::Float32, 3e38}, std::pair{Dtype::BFloat16, 0x1.fep127},
          std::pair{Dtype::Float64, 1.7e308}, std::pair{Dtype::Float16, 65504.0}}) {
      for (const std::vector<double>& values : {std::vector<double>{largest},
                                                {largest, -largest},
                                                {0, largest, largest},
                                                {largest, infinity}}) {
        const auto value_of = [&](int rank) { return spread(dtype, rank, values); };
        const Row row = row_of(plan, value_of);
        const Values expected = expected_weighted_sum(row.operands, row.weights);
        const bool is_finite = std::isfinite(values.back());
        ASSERT_EQ(std::isfinite(expected[0]), is_finite);
        for (const auto& [name, average] : kByPlan) {
          Values own = value_of(context.rank());
          average(context, own, plan);
          ASSERT_EQ(own, expected) << name << ", " << name_of(dtype) << " " << values.back();
        }
        Values mean = value_of(context.rank());
        ops::allreduce(context, mean.view());
        ASSERT_EQ(mean, expected_mean(row.operands)) << name_of(dtype) << " " << values.back();
        ASSERT_EQ(std::isfinite(mean[0]), is_finite);
        Values hierarchical = value_of(context.rank());
        ops::hierarchical_neighbor_allreduce(context, hierarchical.view(), machine_plan);
        ASSERT_EQ(std::isfinite(hierarchical[0]), is_finite) << name_of(dtype);
        const double most = is_finite ? Values(dtype, std::vector<double>{largest})[0] : infinity;
        ASSERT_LE(std::fabs(hierarchical[0]), most) << name_of(dtype);
      }
    }
  });
}

/// Rows that do not sum to 1 stay sums of products, as push-sum's are.
TEST(Averages, OtherRowsAreSumsOfProducts) {
  on_ranks({.at_least = 2}, [](Context& context) {
    NeighborPlan plan = circulant(context.rank(), context.size(), 1, 0);
    plan.self_weight = 1.0 / 3;
    plan.sources[0].weight = 1.0 / 3;
    const auto value_of = [&](int rank) { return thirds(Dtype::Float32, 1003, rank); };
    const Row row = row_of(plan, value_of);
    Values expected(Dtype::Float32, 1003);
    for (std::size_t k = 0; k < 1003; ++k) {
      const float third = 1.0F / 3;
      const float first = third * static_cast<float>(row.operands[0][k]);
      const float second = third * static_cast<float>(row.operands[1][k]);
      expected.set(k, first + second);
    }
    for (const auto& [name, average] : kByPlan) {
      Values own = value_of(context.rank());
      average(context, own, plan);
      ASSERT_EQ(own, expected) << name;
    }
  });
}

}  // namespace
}  // namespace bluefog::testing
