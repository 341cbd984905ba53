#include "topology/families.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "bluefog_cpp/error.hpp"
#include "topology/base_graph.hpp"
#include "topology/equitopo.hpp"
#include "topology/one_to_one.hpp"

namespace bluefog::topology {
namespace {

using Options = FamilyOptions;

std::vector<Family> static_families() {
  const auto fixed = [](auto make_matrix) {
    return [=](const Options& given) { return static_schedule(make_matrix(given)); };
  };
  const auto equistatic_options = [](const Options& given) {
    return EquiStaticOptions{.seed = given.seed, .draws = given.draws, .rho = given.rho};
  };
  const FamilyKind kind = FamilyKind::Static;
  return {
      {"exponential",
       kind,
       "ranks at distances 1, 2, 4, … (powers of the base)",
       {"base"},
       fixed([](const Options& o) { return exponential(o.size, o.base.value_or(2)); })},
      {"symmetric-exponential",
       kind,
       "powers of the base (4) in both directions",
       {"base"},
       fixed([](const Options& o) { return symmetric_exponential(o.size, o.base.value_or(4)); })},
      {"ring", kind, "both neighbours", {}, fixed([](const Options& o) { return ring(o.size); })},
      {"ring-left", kind, "sends to the next lower rank only", {}, fixed([](const Options& o) {
         return ring(o.size, RingStyle::Left);
       })},
      {"ring-right", kind, "sends to the next higher rank only", {}, fixed([](const Options& o) {
         return ring(o.size, RingStyle::Right);
       })},
      {"mesh", kind, "two-dimensional grid with borders", {"shape"}, fixed([](const Options& o) {
         return mesh_2d(o.size, o.shape);
       })},
      {"torus",
       kind,
       "two-dimensional grid that wraps around",
       {"shape"},
       fixed([](const Options& o) { return torus_2d(o.size, o.shape); })},
      {"star", kind, "everybody with the center", {"center"}, fixed([](const Options& o) {
         return star(o.size, o.center);
       })},
      {"full", kind, "everybody with everybody", {}, fixed([](const Options& o) {
         return fully_connected(o.size);
       })},
      {"hypercube", kind, "ranks that differ in one bit; n = 2^d", {}, fixed([](const Options& o) {
         return hypercube(o.size);
       })},
      {"equistatic",
       kind,
       "D-EquiStatic: ln n drawn shifts, directed",
       {"seed", "draws", "rho"},
       fixed([=](const Options& o) { return equistatic(o.size, equistatic_options(o)); })},
      {"equistatic-undirected",
       kind,
       "U-EquiStatic: the same in both directions",
       {"seed", "draws", "rho"},
       fixed(
           [=](const Options& o) { return equistatic_undirected(o.size, equistatic_options(o)); })},
  };
}

std::vector<Family> dynamic_families() {
  const auto equidyn_options = [](const Options& given) {
    return EquiDynOptions{.seed = given.seed, .steps = given.period_steps, .eta = given.eta};
  };
  const FamilyKind kind = FamilyKind::Dynamic;
  return {
      {"base",
       kind,
       "base-(k+1): J after a period for any n, k peers a step",
       {"k"},
       [](const Options& o) { return base_graph(o.size, o.peers); }},
      {"simple-base",
       kind,
       "simple base-(k+1): the same without splitting n",
       {"k"},
       [](const Options& o) { return simple_base_graph(o.size, o.peers); }},
      {"hyper-hypercube",
       kind,
       "grid of up to k + 1 per side; n without larger prime factors",
       {"k"},
       [](const Options& o) { return hyper_hypercube(o.size, o.peers); }},
      {"one-peer-exponential",
       kind,
       "one peer a step, at distance 1, 2, 4, …",
       {},
       [](const Options& o) { return one_peer_exponential(o.size); }},
      {"one-peer-hypercube",
       kind,
       "one peer a step, at XOR 1, 2, 4, …; n = 2^d",
       {},
       [](const Options& o) { return one_peer_hypercube(o.size); }},
      {"one-peer-ring",
       kind,
       "one neighbour of the ring a step, in turn",
       {},
       [](const Options& o) { return one_peer(ring(o.size)); }},
      {"random-matching",
       kind,
       "random pairs, drawn alike on all ranks",
       {"seed", "period"},
       [](const Options& o) { return random_matching(o.size, o.seed, o.period_steps); }},
      {"equidyn",
       kind,
       "OD-EquiDyn: one drawn shift a step, directed",
       {"seed", "period", "eta"},
       [=](const Options& o) { return equidyn(o.size, equidyn_options(o)); }},
      {"equidyn-undirected",
       kind,
       "OU-EquiDyn: pairs at a drawn distance",
       {"seed", "period", "eta"},
       [=](const Options& o) { return equidyn_undirected(o.size, equidyn_options(o)); }},
  };
}

int machines_of(const Options& options) {
  if (options.local_size < 1 || options.size % options.local_size != 0) {
    throw InvalidArgument(fmt::format("{} ranks on machines of {}: expected a divisor of {}",
                                      options.size, options.local_size, options.size));
  }
  return options.size / options.local_size;
}

std::vector<Family> machine_families() {
  const FamilyKind kind = FamilyKind::Machines;
  return {
      {"inner-outer-ring",
       kind,
       "one rank a machine sends to the next, the others go round",
       {"local-size"},
       [](const Options& o) { return inner_outer_ring(machines_of(o), o.local_size); }},
      {"inner-outer-exponential",
       kind,
       "the same at distances 1, 2, 4, …",
       {"local-size"},
       [](const Options& o) { return inner_outer_exponential(machines_of(o), o.local_size); }},
      {"alternating-exponential",
       kind,
       "AER: full inside machines, then pairs of machines",
       {"local-size"},
       [](const Options& o) { return alternating_exponential(machines_of(o), o.local_size); }},
      {"machine-exponential",
       kind,
       "one-peer exponential over the n / local-size machines, which count as ranks",
       {"local-size"},
       [](const Options& o) { return machine_exponential(o.size, o.local_size); }},
  };
}

std::vector<Family> two_variable_families() {
  const FamilyKind kind = FamilyKind::TwoVariables;
  return {
      {"ceca", kind, "CECA: exact in ⌈log₂ n⌉ steps for any n, two variables", {}, {}},
      {"ceca-one-port", kind, "the same with one partner a step; n even", {}, {}},
  };
}

}  // namespace

const std::vector<Family>& families() {
  static const std::vector<Family> kFamilies = [] {
    std::vector<Family> all;
    for (const auto& group :
         {static_families(), dynamic_families(), two_variable_families(), machine_families()}) {
      all.insert(all.end(), group.begin(), group.end());
    }
    return all;
  }();
  return kFamilies;
}

const Family& find_family(std::string_view name) {
  const auto found = std::ranges::find(families(), name, &Family::name);
  if (found == families().end()) {
    throw InvalidArgument(fmt::format("topology: expected one of {}, found '{}'",
                                      fmt::join(family_names(), ", "), name));
  }
  return *found;
}

std::vector<std::string> family_names() {
  std::vector<std::string> names;
  for (const Family& family : families()) {
    names.emplace_back(family.name);
  }
  return names;
}

std::vector<std::string> schedule_names() {
  std::vector<std::string> names;
  for (const Family& family : families()) {
    if (family.kind == FamilyKind::Static || family.kind == FamilyKind::Dynamic) {
      names.emplace_back(family.name);
    }
  }
  return names;
}

Schedule make_schedule(std::string_view name, const FamilyOptions& options) {
  const Family& family = find_family(name);
  if (family.kind == FamilyKind::TwoVariables) {
    throw UnsupportedError(
        fmt::format("topology '{}' keeps two variables per rank: no mixing matrix describes it, "
                    "expected a family that has one; the algorithm ceca averages by it",
                    name));
  }
  return family.make(options);
}

}  // namespace bluefog::topology
