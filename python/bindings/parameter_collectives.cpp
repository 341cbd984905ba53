#include "optimizers/parameter_collectives.hpp"

#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ops/calls/allgather_parts.hpp"
#include "optimizers/checks/agreement.hpp"
#include "optimizers/sampling/common_deal.hpp"
#include "optimizers/sampling/deal.hpp"
#include "optimizers/wrapper/newcomers.hpp"
#include "python/bindings/bindings.hpp"
#include "python/bindings/named_pairs.hpp"

namespace bluefog::python {

namespace opt = bluefog::optimizers;

namespace {

/// The fields of a `sampling::KnownDeal`, and of a `sampling::Standing`.
using KnownTuple = std::tuple<std::int64_t, std::vector<int>, std::int64_t, bool>;
using StandingTuple = std::tuple<int, bool, std::vector<KnownTuple>>;

std::vector<opt::sampling::Standing> standings_of(const std::vector<StandingTuple>& tuples) {
  std::vector<opt::sampling::Standing> standings;
  for (const auto& [number, is_new, known] : tuples) {
    auto& standing =
        standings.emplace_back(opt::sampling::Standing{.number = number, .is_new = is_new});
    for (const auto& [generation, members, drawn, has_ended] : known) {
      standing.known.push_back({generation, members, drawn, has_ended});
    }
  }
  return standings;
}

}  // namespace

void bind_parameter_collectives(py::module_& module) {
  module.def(
      "check_ranks_agree",
      [](Context& context, const std::string& subject, std::vector<std::string> lines,
         const std::string& problem) {
        opt::check_ranks_agree(context, subject, {.lines = std::move(lines), .problem = problem});
      },
      py::arg("context"), py::arg("subject"), py::arg("lines"), py::arg("problem"), WithoutGil(),
      "Collective. See optimizers/checks/agreement.hpp.");
  module.def(
      "broadcast_tensors",
      [](Context& context, const NamedPairs& tensors, int root, const std::string& call) {
        opt::broadcast(context, named_tensors(tensors), root, call);
      },
      py::arg("context"), py::arg("tensors"), py::arg("root"), py::arg("call"), WithoutGil());
  module.def(
      "average_tensors",
      [](Context& context, const NamedPairs& tensors, const std::string& call, int newcomers,
         bool is_new) {
        opt::average_without({.count = newcomers, .is_one = is_new}, context,
                             named_tensors(tensors), call);
      },
      py::arg("context"), py::arg("tensors"), py::arg("call"), py::arg("newcomers") = 0,
      py::arg("is_new") = false, WithoutGil(),
      "See optimizers/wrapper/newcomers.hpp; the mean of all without newcomers.");
  module.def(
      "first_shares",
      [](std::int64_t count, bool shuffles, std::uint64_t seed, std::int64_t epoch, int ranks) {
        return opt::Dealing{.count = count, .shuffles = shuffles, .seed = seed}.first_shares(epoch,
                                                                                             ranks);
      },
      py::arg("count"), py::arg("shuffles"), py::arg("seed"), py::arg("epoch"), py::arg("ranks"),
      "See optimizers/sampling/deal.hpp.");
  module.def(
      "later_shares",
      [](std::int64_t count, bool shuffles, std::uint64_t seed, std::int64_t epoch,
         const std::vector<at::Tensor>& shares, const std::vector<std::int64_t>& drawn) {
        return opt::Dealing{.count = count, .shuffles = shuffles, .seed = seed}.later_shares(
            epoch, shares, drawn);
      },
      py::arg("count"), py::arg("shuffles"), py::arg("seed"), py::arg("epoch"), py::arg("shares"),
      py::arg("drawn"), "See optimizers/sampling/deal.hpp.");
  py::class_<opt::sampling::CommonDeal>(module, "CommonDeal")
      .def_readonly("generation", &opt::sampling::CommonDeal::generation)
      .def_readonly("members", &opt::sampling::CommonDeal::members)
      .def_readonly("has_part", &opt::sampling::CommonDeal::has_part)
      .def_readonly("giver", &opt::sampling::CommonDeal::giver)
      .def_readonly("drawn", &opt::sampling::CommonDeal::drawn)
      .def_readonly("has_ended", &opt::sampling::CommonDeal::has_ended)
      .def_readonly("is_newest", &opt::sampling::CommonDeal::is_newest);
  module.def(
      "common_deal",
      [](const std::vector<StandingTuple>& standings) {
        return opt::sampling::common_deal(standings_of(standings));
      },
      py::arg("standings"), "See optimizers/sampling/common_deal.hpp.");
  module.def(
      "draws_of",
      [](const opt::sampling::CommonDeal& common, const std::vector<int>& ranks,
         const std::vector<at::Tensor>& dealt, const std::vector<at::Tensor>& later,
         std::int64_t trained) {
        opt::sampling::Draws draws = opt::sampling::draws_of(common, ranks, dealt, later, trained);
        return std::pair(std::move(draws.shares), std::move(draws.drawn));
      },
      py::arg("common"), py::arg("ranks"), py::arg("dealt"), py::arg("later"), py::arg("trained"),
      "See optimizers/sampling/common_deal.hpp.");
  module.def(
      "gather_bytes",
      [](Context& context, const std::string& call, const py::bytes& own) {
        const std::string text = own;
        std::vector<std::string> all;
        {
          const py::gil_scoped_release released;
          all = ops::allgather_parts(context, call, text);
        }
        py::list parts;
        for (const std::string& part : all) {
          parts.append(py::bytes(part));
        }
        return parts;
      },
      py::arg("context"), py::arg("call"), py::arg("own"),
      "Collective. What each rank passed, by rank; `call` is the user's call, for messages.");
}

}  // namespace bluefog::python
