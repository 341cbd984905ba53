#include "examples/common/named_schedule.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <functional>
#include <map>

#include "bluefog_cpp/base/error.hpp"
#include "topology/one_to_one.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::examples {
namespace {

using Builder = std::function<Schedule(int size)>;
using Builders = std::map<std::string, Builder, std::less<>>;

const Builders& builders() {
  namespace graphs = topology;
  const auto fixed = [](auto make_matrix) -> Builder {
    return [=](int size) { return graphs::static_schedule(make_matrix(size)); };
  };
  static const Builders kBuilders{
      {"exponential", fixed([](int n) { return graphs::exponential(n); })},
      {"symmetric-exponential", fixed([](int n) { return graphs::symmetric_exponential(n); })},
      {"ring", fixed([](int n) { return graphs::ring(n); })},
      {"ring-left", fixed([](int n) { return graphs::ring(n, graphs::RingStyle::Left); })},
      {"mesh", fixed([](int n) { return graphs::mesh_2d(n); })},
      {"torus", fixed([](int n) { return graphs::torus_2d(n); })},
      {"star", fixed([](int n) { return graphs::star(n); })},
      {"full", fixed(graphs::fully_connected)},
      {"hypercube", fixed(graphs::hypercube)},
      {"one-peer-exponential", graphs::one_peer_exponential},
      {"one-peer-hypercube", graphs::one_peer_hypercube},
      {"one-peer-ring", [](int n) { return graphs::one_peer(graphs::ring(n)); }},
      {"random-matching", [](int n) { return graphs::random_matching(n, 1); }},
  };
  return kBuilders;
}

}  // namespace

const std::vector<std::string>& schedule_names() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names;
    for (const auto& [name, builder] : builders()) {
      names.push_back(name);
    }
    return names;
  }();
  return kNames;
}

Schedule make_schedule(std::string_view name, int size) {
  const auto found = builders().find(name);
  if (found == builders().end()) {
    throw InvalidArgument(fmt::format("topology: expected one of {}, found '{}'",
                                      fmt::join(schedule_names(), ", "), name));
  }
  return found->second(size);
}

}  // namespace bluefog::examples
