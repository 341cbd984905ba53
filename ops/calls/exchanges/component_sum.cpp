#include "ops/calls/exchanges/component_sum.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "bluefog_cpp/base/copy.hpp"
#include "bluefog_cpp/error.hpp"
#include "bluefog_cpp/transport/host_memory.hpp"
#include "ops/calls/exchanges/sharded_reduction.hpp"
#include "topology/mixing/step_graph.hpp"

namespace bluefog::ops {
namespace {

/// The bytes of all sources and results of a block: they stay in the nearest cache. Shorter blocks
/// than the least are over before their sums are set up, longer ones than the most gain nothing.
constexpr std::size_t kCachedBytes = std::size_t{32} << 10U;
constexpr std::size_t kLeastBlock = 2048;
constexpr std::size_t kMostBlock = 4096;

std::size_t block_bytes(std::size_t sources, std::size_t results) {
  const std::size_t bytes = kCachedBytes / (sources + results) / 64 * 64;
  return std::clamp(bytes, kLeastBlock, kMostBlock);
}

/// The most bytes that the results of a block take.
std::size_t most_results(std::size_t ranks) { return std::max(kCachedBytes, ranks * kLeastBlock); }

/// Two ranks, each the other's only neighbour: both know that by themselves.
bool is_of_a_pair(const NeighborPlan& plan) {
  return plan.size == 2 && plan.sources.size() == 1 && plan.destinations.size() == 1;
}

std::shared_ptr<const StepComponent> pair_component() {
  static const std::shared_ptr<const StepComponent> kPair = StepComponent::around(
      0, 2, [](int rank) { return StepLinks{.sources = {1 - rank}, .destinations = {1 - rank}}; });
  return kPair;
}

}  // namespace

std::shared_ptr<const StepComponent> ComponentSum::component_of(const Context& context,
                                                                const NeighborPlan& plan,
                                                                const StepGraph* graph,
                                                                std::size_t bytes) {
  const MachineLayout& hosts = context.hosts();
  const int host = hosts.machine_of(plan.rank);
  const std::size_t most = hosts.ranks_of(host).size();
  std::shared_ptr<const StepComponent> component;
  if (is_of_a_pair(plan)) {
    component = most == 2 ? pair_component() : nullptr;
  } else if (graph != nullptr && most > 1) {
    component = graph->component_of(plan.rank, most);
  }
  const bool is_here =
      component && component->size() > 1 && bytes >= least_bytes(component->size()) &&
      std::ranges::all_of(component->ranks(),
                          [&](int rank) { return hosts.machine_of(rank) == host; });
  return is_here ? component : nullptr;
}

ComponentSum::ComponentSum(const Context& context, std::shared_ptr<const StepComponent> component,
                           const NeighborPlan& plan, const ConstBufferView& input,
                           const BufferView& output, SynchronisationChoice synchronisation)
    : core_(context.core()),
      memory_(core_.shared_memory()),
      component_(std::move(component)),
      group_(Group::of(component_->ranks(), plan.rank)),
      output_(output),
      synchronisation_(synchronisation == SynchronisationChoice::Auto
                           ? core_.settings().synchronisation
                           : synchronisation),
      sums_(arithmetic_on(context, output.device)),
      incoming_(group_.peers.size()),
      begins_(1 + group_.size()) {
  for (std::size_t place = 0; place < group_.size(); ++place) {
    begins_[place + 1] = begins_[place] + offer_bytes(place) / sizeof(double);
  }
  words_.resize(begins_.back());
  self_weight_ = plan.self_weight;
  write_weights(plan);
  if (input.data == output.data) {
    place_ = memory_->place_of(output.data, output.bytes()).value_or(kNowhere);
  }
}

// Retires the buffer's place: ranks that heard of it may write to it, whatever became of the call.
ComponentSum::~ComponentSum() {
  const bool is_known = stage_ == InPlaceStage::Offers || stage_ == InPlaceStage::Receipts;
  if (is_known && takes_part_) {
    memory_->retire(place_);
  }
}

InPlaceStep ComponentSum::next(ExchangeSpec& spec, std::uint64_t call) {
  switch (stage_) {
    case InPlaceStage::Begin:
      stage_ = InPlaceStage::Offers;
      call_ = call;
      make_offer();
      describe_offers(spec);
      return InPlaceStep::Exchange;
    case InPlaceStage::Offers:
      if (!takes_part_ || !all_take_part()) {
        stage_ = InPlaceStage::Over;
        return InPlaceStep::Declined;
      }
      begun_ = Clock::now();
      form_share(call);
      stage_ = InPlaceStage::Receipts;
      describe_receipts(spec);
      return InPlaceStep::Exchange;
    case InPlaceStage::Receipts:
      core_.component_waits().note_sum(begun_ - heard_, Clock::now() - begun_);
      break;
    case InPlaceStage::Over:
      break;
  }
  stage_ = InPlaceStage::Over;
  return InPlaceStep::Over;
}

std::size_t ComponentSum::offer_bytes(std::size_t place) const {
  const std::size_t weights = component_->heard(place).size() + component_->sent_count(place);
  return sizeof(Offer) + weights * sizeof(double);
}

ComponentSum::Offer ComponentSum::offer_of(std::size_t place) const {
  std::array<double, sizeof(Offer) / sizeof(double)> words;
  std::copy_n(&words_[begins_[place]], words.size(), words.begin());
  return std::bit_cast<Offer>(words);
}

RankStepWeights ComponentSum::weights_of(std::size_t place) const {
  const double* const weights = &words_[begins_[place]] + sizeof(Offer) / sizeof(double);
  const std::size_t heard = component_->heard(place).size();
  return {.self = offer_of(place).self_weight,
          .sources = {weights, heard},
          .destinations = {weights + heard, component_->sent_count(place)}};
}

bool ComponentSum::sends_to_its_readers(const NeighborPlan& plan) const {
  for (std::size_t place = 0; place < group_.size(); ++place) {
    for (const auto& edge : component_->heard(place)) {
      if (edge.from == group_.own && plan.destinations[edge.number].rank != group_.ranks[place]) {
        return false;
      }
    }
  }
  return true;
}

void ComponentSum::write_weights(const NeighborPlan& plan) {
  const auto heard = component_->heard(group_.own);
  takes_part_ = plan.sources.size() == heard.size() &&
                plan.destinations.size() == component_->sent_count(group_.own) &&
                std::ranges::equal(plan.sources, heard,
                                   [&](const auto& source, const auto& edge) {
                                     return source.rank == group_.ranks[edge.from];
                                   }) &&
                sends_to_its_readers(plan);
  if (!takes_part_) {
    return;
  }
  double* weight = &words_[begins_[group_.own]] + sizeof(Offer) / sizeof(double);
  for (const auto* side : {&plan.sources, &plan.destinations}) {
    for (const WeightedRank& neighbor : *side) {
      *weight++ = neighbor.weight;
    }
  }
}

void ComponentSum::make_offer() {
  ComponentWaits& waits = core_.component_waits();
  if (synchronisation_ == SynchronisationChoice::Neighbors) {
    takes_part_ = false;
  } else if (synchronisation_ == SynchronisationChoice::Auto) {
    takes_part_ = waits.begin() && takes_part_;
  }
  takes_part_ = takes_part_ && place_ != kNowhere && has_log();
  const bool rests = synchronisation_ == SynchronisationChoice::Auto;
  const Offer offer{.place = takes_part_ ? place_ : kNowhere,
                    .graph = static_cast<std::uint32_t>(component_->digest()),
                    .resting = rests ? waits.resting() : 0,
                    .self_weight = self_weight_};
  std::memcpy(&words_[begins_[group_.own]], &offer, sizeof offer);
}

std::size_t ComponentSum::log_bytes() const {
  return ResultLog::bytes_for(most_results(group_.size()));
}

// Another call may take a larger log, in another place, before this one forms its results.
bool ComponentSum::has_log() const {
  try {
    (void)memory_->log(log_bytes());
    return true;
  } catch (const TransportError&) {
    return false;
  }
}

// A rank that does not take part needs nobody's offer.
void ComponentSum::describe_offers(ExchangeSpec& spec) {
  outgoing_ = {.data = reinterpret_cast<const std::byte*>(&words_[begins_[group_.own]]),
               .bytes = offer_bytes(group_.own),
               .readers = group_.others()};
  spec.envelope.kind = offering(spec.envelope.kind);
  spec.outgoing = {&outgoing_, 1};
  spec.pace = Pace::Each;
  spec.keeps_buffers = true;
  spec.last = false;
  heard_ = Clock::now();
  if (!takes_part_) {
    spec.unneeded_offers = group_.others();
    return;
  }
  for (std::size_t i = 0; i < incoming_.size(); ++i) {
    incoming_[i] = {.source = group_.peers[i], .bytes = offer_bytes(group_.place_of_peer(i))};
  }
  spec.incoming = {incoming_.data(), incoming_.size()};
}

void ComponentSum::describe_receipts(ExchangeSpec& spec) {
  outgoing_ = {.data = nullptr, .bytes = 0, .readers = group_.others()};
  for (std::size_t i = 0; i < incoming_.size(); ++i) {
    incoming_[i] = {.source = group_.peers[i], .bytes = 0};
  }
  spec.outgoing = {&outgoing_, 1};
  spec.incoming = {incoming_.data(), incoming_.size()};
  spec.pace = Pace::Each;
  spec.follows_change = true;
  spec.last = false;
}

void ComponentSum::receive(std::size_t offset, std::size_t bytes, std::span<const Piece> pieces) {
  const std::size_t place = group_.place_of_peer(pieces[0].source_index);
  std::memcpy(reinterpret_cast<std::byte*>(&words_[begins_[place]]) + offset, pieces[0].data,
              bytes);
  const bool is_heard = std::ranges::any_of(component_->heard(group_.own),
                                            [&](const auto& edge) { return edge.from == place; });
  if (is_heard) {
    heard_ = Clock::now();
  }
  if (offset + bytes == offer_bytes(place)) {
    check_graph(place);
  }
}

// Ranks of another component would wait for offers that this rank does not send, and it for theirs.
void ComponentSum::check_graph(std::size_t place) const {
  if (offer_of(place).graph == offer_of(group_.own).graph) {
    return;
  }
  constexpr std::size_t kNamed = 16;
  const std::span<const int> ranks(group_.ranks.data(), std::min(group_.ranks.size(), kNamed));
  throw MismatchError(fmt::format(
      "rank {}, {}, neighbor_allreduce: expected rank {} to see the step's graph as this rank does, "
      "in which messages tie ranks {}{} together, found that it sees another one; are all ranks at the "
      "same step of the same schedule?",
      group_.ranks[group_.own], call_text(call_), group_.ranks[place], fmt::join(ranks, ", "),
      group_.ranks.size() > kNamed ? ", ..." : ""));
}

// Whoever takes part has the same offers before it, and comes to the same answer.
bool ComponentSum::all_take_part() const {
  bool all = true;
  std::uint32_t resting = 0;
  for (std::size_t place = 0; place < group_.size(); ++place) {
    const Offer offer = offer_of(place);
    all = all && offer.place != kNowhere;
    resting = std::max(resting, offer.resting);
  }
  if (!all) {
    core_.component_waits().note_refusal(resting);
  }
  return all;
}

void ComponentSum::form_share(std::uint64_t call) {
  boost::container::small_vector<RankStepWeights, 1 + kInlineNeighbors> weights;
  for (std::size_t place = 0; place < group_.size(); ++place) {
    weights.push_back(weights_of(place));
    buffers_.push_back(memory_->at(group_.ranks[place], offer_of(place).place, output_.bytes()));
  }
  const auto rows = result_rows(*component_, {weights.data(), weights.size()});
  ResultLog log(memory_->log(log_bytes()));
  const Shards shards{.bytes = output_.bytes(), .owners = group_.size()};
  const std::size_t begin = shards.begin(group_.own);
  const std::size_t bytes = shards.begin(group_.own + 1) - begin;
  log.begin(call);
  AverageRows averages = averages_of(rows, begin);
  if (!averages.empty()) {
    average_rows(output_.dtype, {averages.data(), averages.size()}, bytes, log);
  } else {
    form_blocks(rows, begin, bytes, log);
  }
}

ComponentSum::AverageRows ComponentSum::averages_of(const ResultRows& rows,
                                                    std::size_t offset) const {
  AverageRows averages(rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (const auto& [place, weight] : rows[i].terms) {
      averages[i].operands.push_back({.data = buffers_[place] + offset, .weight = weight});
    }
    const auto base = base_of(averages[i].all_operands());
    if (!base) {
      return {};
    }
    averages[i].base = *base;
    for (const std::size_t place : rows[i].results) {
      averages[i].results.push_back(buffers_[place] + offset);
    }
  }
  return averages;
}

void ComponentSum::form_blocks(const ResultRows& rows, std::size_t begin, std::size_t bytes,
                               ResultLog& log) {
  const std::size_t most = block_bytes(group_.size(), rows.size());
  const std::size_t end = begin + bytes;
  for (std::size_t offset = begin; offset < end; offset += most) {
    const std::size_t block = std::min(most, end - offset);
    form(rows, log.results(), offset, block);
    log.note_formed();
    write(rows, log.results(), offset, block);
    log.note_written();
  }
}

void ComponentSum::form(const ResultRows& rows, std::byte* results, std::size_t offset,
                        std::size_t bytes) {
  for (const ResultRow& row : rows) {
    operands_.clear();
    for (const auto& [place, weight] : row.terms) {
      operands_.push_back({.data = buffers_[place] + offset, .weight = weight});
    }
    sums_->weighted_sum(output_.dtype, results, {operands_.data(), operands_.size()}, bytes);
    results += bytes;
  }
}

void ComponentSum::write(const ResultRows& rows, const std::byte* results, std::size_t offset,
                         std::size_t bytes) const {
  for (const ResultRow& row : rows) {
    for (const std::size_t place : row.results) {
      copy_bytes(buffers_[place] + offset, results, bytes);
    }
    results += bytes;
  }
}

}  // namespace bluefog::ops
