#include "optimizers/algorithms/power_gossip.hpp"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "bluefog_cpp/error.hpp"
#include "ops/neighbor_allgather.hpp"
#include "optimizers/algorithms/codes/coded_values.hpp"
#include "optimizers/algorithms/registry/built_in_rows.hpp"
#include "optimizers/bucket_averages.hpp"
#include "optimizers/round_calls.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::optimizers {
namespace {

/// Longer schedules make everybody a neighbour.
constexpr std::int64_t kRoundsLookedAt = 1024;
/// Weights of an edge that differ by rounding are one, as for `MixingMatrix::is_symmetric`.
constexpr double kRounding = 1e-14;

/// Precedes what a message has for one rank.
struct EntryHead {
  std::int64_t rank = 0;
  double weight = 0.0;
  std::uint64_t factors = 0;
};

std::size_t length_of(const at::Tensor& tensor) { return tensor.nbytes(); }

void write_factor(const at::Tensor& from, std::byte* to) {
  std::memcpy(to, from.const_data_ptr(), length_of(from));
}

void read_factor(const std::byte* from, const at::Tensor& to) {
  std::memcpy(to.mutable_data_ptr(), from, length_of(to));
}

/// The same number for the same bytes.
std::uint64_t number_of_factors(const std::vector<at::Tensor>& factors) {
  std::uint64_t number = 0x9e3779b97f4a7c15U;
  for (const at::Tensor& factor : factors) {
    const auto* const bytes = static_cast<const unsigned char*>(factor.const_data_ptr());
    for (std::size_t i = 0; i < length_of(factor); ++i) {
      number = (number ^ bytes[i]) * 0x100000001b3U;
    }
  }
  return number;
}

/// The same at both ends.
std::uint64_t seed_of(int one, int other, std::size_t matrix) {
  const auto [lower, higher] = std::minmax(one, other);
  return (static_cast<std::uint64_t>(lower) << 44U) ^ (static_cast<std::uint64_t>(higher) << 22U) ^
         matrix;
}

}  // namespace

PowerGossip::PowerGossip(Context& context, std::vector<Bucket>& buckets, const Schedule& schedule,
                         std::int64_t rank)
    : Algorithm(buckets), context_(context) {
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    check_coded(context, buckets[b], fmt::format("power_gossip of rank {}", rank));
    for (std::size_t i = 0; i < buckets[b].segments().size(); ++i) {
      add_part(b, i, rank);
    }
  }
  if (schedule.period_steps() > kRoundsLookedAt) {
    for (int other = 0; other < context.size(); ++other) {
      if (other != context.rank()) {
        edge_to(other);
      }
    }
    return;
  }
  for (std::int64_t step = 0; step < schedule.period_steps(); ++step) {
    for (const WeightedRank& source : schedule.plan_for(context.rank(), step)->sources) {
      edge_to(source.rank);
    }
  }
}

void PowerGossip::add_part(std::size_t bucket, std::size_t segment, std::int64_t rank) {
  const Segment& place = buckets_[bucket].segments()[segment];
  const std::size_t element = buckets_[bucket].flat().element_size();
  Part part{.bucket = bucket, .segment = segment};
  if (const auto shape = matrix_shape(place, rank)) {
    part.shape = *shape;
    part.first = p_bytes_;
    part.later = q_bytes_;
    p_bytes_ += element * static_cast<std::size_t>(shape->rows * shape->rank);
    q_bytes_ += element * static_cast<std::size_t>(shape->columns * shape->rank);
    matrices_.push_back(part);
  } else {
    part.first = vector_bytes_;
    vector_bytes_ += element * static_cast<std::size_t>(place.count());
    vectors_.push_back(part);
  }
}

PowerGossip::Edge& PowerGossip::edge_to(int rank) {
  const auto [place, is_new] = edges_.try_emplace(rank);
  if (is_new) {
    for (const Part& part : matrices_) {
      place->second.push_back(
          at::zeros({part.shape.columns, part.shape.rank}, buckets_[part.bucket].flat().options()));
    }
  }
  return place->second;
}

at::Tensor PowerGossip::matrix_of(const Part& part) const {
  const Bucket& bucket = buckets_[part.bucket];
  return as_matrix(place_in(bucket.flat(), bucket.segments()[part.segment]), part.shape);
}

// X q of every edge.
std::vector<PowerGossip::Meeting> PowerGossip::begin(const Round& round) {
  std::vector<Meeting> meetings;
  for (const WeightedRank& source : round.plan->sources) {
    Meeting meeting{.rank = source.rank, .weight = source.weight};
    const Edge& edge = edge_to(source.rank);
    for (std::size_t m = 0; m < matrices_.size(); ++m) {
      prepare_factor(edge[m], seed_of(context_.rank(), source.rank, m));
      meeting.p.push_back(matrix_of(matrices_[m]).mm(edge[m]).contiguous());
    }
    meeting.factors = number_of_factors(edge);
    meetings.push_back(std::move(meeting));
  }
  return meetings;
}

PowerGossip::Bytes PowerGossip::first_message(const std::vector<Meeting>& meetings) {
  const std::size_t entry = sizeof(EntryHead) + p_bytes_;
  auto message = std::make_shared<std::vector<std::byte>>(vector_bytes_ + meetings.size() * entry);
  for (const Part& part : vectors_) {
    const Bucket& bucket = buckets_[part.bucket];
    const Segment& segment = bucket.segments()[part.segment];
    // The values as they lie: both ends have the same layout.
    write_factor(bucket.flat().narrow(0, segment.offset, segment.count()),
                 message->data() + part.first);
  }
  std::byte* to = message->data() + vector_bytes_;
  for (const Meeting& meeting : meetings) {
    const EntryHead head{
        .rank = meeting.rank, .weight = meeting.weight, .factors = meeting.factors};
    std::memcpy(to, &head, sizeof head);
    for (std::size_t m = 0; m < matrices_.size(); ++m) {
      write_factor(meeting.p[m], to + sizeof head + matrices_[m].first);
    }
    to += entry;
  }
  return message;
}

PowerGossip::Bytes PowerGossip::later_message(const std::vector<Meeting>& meetings) const {
  const std::size_t entry = sizeof(EntryHead) + q_bytes_;
  auto message = std::make_shared<std::vector<std::byte>>(meetings.size() * entry);
  std::byte* to = message->data();
  for (const Meeting& meeting : meetings) {
    const EntryHead head{.rank = meeting.rank};
    std::memcpy(to, &head, sizeof head);
    for (std::size_t m = 0; m < matrices_.size(); ++m) {
      write_factor(meeting.q[m], to + sizeof head + matrices_[m].later);
    }
    to += entry;
  }
  return message;
}

std::shared_ptr<PowerGossip::Incoming> PowerGossip::exchange(const Bytes& message,
                                                             const Round& round,
                                                             ops::PlanCheck check,
                                                             const char* name) {
  const auto view = [](std::vector<std::byte>& bytes, std::shared_ptr<const void> owner) {
    BufferView all;
    all.data = bytes.data();
    all.count = static_cast<std::int64_t>(bytes.size());
    all.dtype = Dtype::UInt8;
    all.owner = std::move(owner);
    return all;
  };
  auto incoming = std::make_shared<Incoming>();
  const auto place = [incoming, view](const std::vector<std::int64_t>& lengths) {
    std::int64_t all = 0;
    for (const std::int64_t length : lengths) {
      all += length;
      incoming->lengths.push_back(static_cast<std::size_t>(length));
    }
    incoming->bytes.resize(static_cast<std::size_t>(all));
    return view(incoming->bytes, incoming);
  };
  ops::neighbor_allgather(context_, view(*message, message), place, round.plan,
                          {.name = name, .check = check});
  return incoming;
}

std::span<const std::byte> PowerGossip::message_of(const Incoming& messages, std::size_t s) {
  const auto first =
      std::accumulate(messages.lengths.begin(),
                      messages.lengths.begin() + static_cast<std::ptrdiff_t>(s), std::size_t{0});
  return std::span(messages.bytes).subspan(first, messages.lengths[s]);
}

std::span<const std::byte> PowerGossip::entry_of(const Incoming& messages, std::size_t s,
                                                 std::size_t common, std::size_t length) const {
  const std::span message = message_of(messages, s);
  const std::size_t entry = sizeof(EntryHead) + length;
  for (std::size_t at = common; at + entry <= message.size(); at += entry) {
    EntryHead head;
    std::memcpy(&head, message.data() + at, sizeof head);
    if (head.rank == context_.rank()) {
      return message.subspan(at, entry);
    }
  }
  throw StateError(fmt::format(
      "rank {}, power_gossip: expected a message for this rank from source {} of the round's plan, "
      "found one for others: both ranks of an edge hear each other",
      context_.rank(), s));
}

// p of every edge from both ranks' X q, and this rank's Xᵀ p.
void PowerGossip::meet(const Incoming& messages, std::vector<Meeting>& meetings) {
  for (std::size_t s = 0; s < meetings.size(); ++s) {
    Meeting& meeting = meetings[s];
    const std::span entry = entry_of(messages, s, vector_bytes_, p_bytes_);
    EntryHead head;
    std::memcpy(&head, entry.data(), sizeof head);
    if (!(std::abs(head.weight - meeting.weight) <= kRounding)) {
      throw StateError(fmt::format(
          "rank {}, power_gossip: expected both ranks of an edge to give it one weight, "
          "found {} here and {} on rank {}",
          context_.rank(), meeting.weight, head.weight, meeting.rank));
    }
    meeting.is_alike = head.factors == meeting.factors;
    for (std::size_t m = 0; m < matrices_.size(); ++m) {
      const at::Tensor theirs = at::empty_like(meeting.p[m]);
      read_factor(entry.data() + sizeof head + matrices_[m].first, theirs);
      meeting.p[m] = context_.rank() < meeting.rank ? meeting.p[m] - theirs : theirs - meeting.p[m];
      orthonormalize(meeting.p[m]);
      meeting.q.push_back(matrix_of(matrices_[m]).t().mm(meeting.p[m]).contiguous());
    }
  }
}

void PowerGossip::take_in(const Incoming& first, const Incoming& later, const Bytes& own,
                          std::vector<Meeting>& meetings) {
  const torch::NoGradGuard no_grad;
  for (std::size_t s = 0; s < meetings.size(); ++s) {
    const Meeting& meeting = meetings[s];
    const bool is_lower = context_.rank() < meeting.rank;
    const std::span entry = entry_of(later, s, 0, q_bytes_);
    const Edge& edge = edge_to(meeting.rank);
    for (std::size_t m = 0; m < matrices_.size(); ++m) {
      const at::Tensor theirs = at::empty_like(meeting.q[m]);
      read_factor(entry.data() + sizeof(EntryHead) + matrices_[m].later, theirs);
      const at::Tensor q = is_lower ? meeting.q[m] - theirs : theirs - meeting.q[m];
      if (!meeting.is_alike) {
        edge[m].zero_();  // drawn anew, by both
        continue;
      }
      edge[m].copy_(q);
      const Bucket& bucket = buckets_[matrices_[m].bucket];
      const at::Tensor x = place_in(bucket.flat(), bucket.segments()[matrices_[m].segment]);
      x.add_(product(meeting.p[m], q).reshape(x.sizes()),
             is_lower ? -meeting.weight : meeting.weight);
    }
    for (const Part& part : vectors_) {
      const Bucket& bucket = buckets_[part.bucket];
      const Segment& segment = bucket.segments()[part.segment];
      const at::Tensor x = bucket.flat().narrow(0, segment.offset, segment.count());
      const at::Tensor told = at::empty_like(x);
      const at::Tensor heard = at::empty_like(x);
      read_factor(own->data() + part.first, told);
      read_factor(message_of(first, s).data() + part.first, heard);
      x.add_(heard - told, meeting.weight);
    }
  }
}

void PowerGossip::step(const Round& round, const StepBucket& step_bucket) {
  std::vector<Meeting> meetings;
  Bytes own;
  std::shared_ptr<Incoming> first;
  std::shared_ptr<Incoming> later;
  run_round(context_, calls_due(), [&](std::size_t& issued) {
    for (const Bucket& bucket : buckets_) {
      step_bucket(bucket);
    }
    const torch::NoGradGuard no_grad;
    meetings = begin(round);
    own = first_message(meetings);
    ++issued;
    first = exchange(own, round, round.check, "left factors");
    meet(*first, meetings);
    const Bytes factors = later_message(meetings);
    ++issued;
    later = exchange(factors, round, ops::PlanCheck::Trusted, "right factors");
  });
  take_in(*first, *later, own, meetings);
  note_changes(buckets_);
}

NamedTensors PowerGossip::state() const {
  NamedTensors state;
  for (const auto& [rank, edge] : edges_) {
    for (std::size_t m = 0; m < matrices_.size(); ++m) {
      const Part& part = matrices_[m];
      state.push_back({fmt::format("edge to rank {}, factor of {}", rank,
                                   buckets_[part.bucket].segments()[part.segment].name),
                       edge[m]});
    }
  }
  return state;
}

void PowerGossip::restart() {
  for (const auto& [name, tensor] : state()) {
    tensor.zero_();
  }
}

namespace {

/// Why a caller's plan is none for it: values go along an edge in both directions alike, and what a
/// rank does not give it keeps.
std::string why_unfit(const NeighborPlan& plan) {
  constexpr double kTolerance = 1e-9;
  if (!std::ranges::is_permutation(plan.sources, plan.destinations, {}, &WeightedRank::rank,
                                   &WeightedRank::rank)) {
    return fmt::format(
        "power_gossip expects a plan whose sources are its destinations, found {} and {} of them, "
        "or others",
        plan.sources.size(), plan.destinations.size());
  }
  double sum = plan.self_weight;
  for (const WeightedRank& source : plan.sources) {
    sum += source.weight;
  }
  if (std::abs(sum - 1.0) > kTolerance) {
    return fmt::format("power_gossip expects a plan whose weights sum to 1, found {}", sum);
  }
  const auto scaled = std::ranges::find_if(
      plan.destinations, [](const WeightedRank& reader) { return reader.weight != 1.0; });
  return scaled == plan.destinations.end()
             ? std::string()
             : fmt::format(
                   "power_gossip expects a plan that sends with weight 1, found {} to rank {}",
                   scaled->weight, scaled->rank);
}

}  // namespace

AlgorithmRow power_gossip_row() {
  return {
      .name = "power_gossip",
      .equation = "ψ = x − γ d; for each edge p qᵀ of rank r near ψᵢ − ψⱼ; x ← ψ − Σⱼ W(i, j) p qᵀ",
      .description =
          "Adapt-then-combine that sends factors of what neighbours differ by, a power iteration "
          "for each edge and round.",
      .source = "PowerGossip, arXiv 2008.01425",
      .memory = {.note = "a factor for each matrix and edge",
                 .carried = "a factor for each matrix and edge"},
      .options = {{.name = "low_rank",
                   .default_value = std::int64_t{1},
                   .meaning = "r, from 1 to 1024",
                   .least = 1.0,
                   .below = 1025.0}},
      .mixing = {.stochastic = Stochastic::RowsAndColumns,
                 .is_symmetric = true,
                 .symmetric_because = "what a rank gets along an edge the other one gives",
                 .note = "symmetric, weights ≥ 0, rows sum to 1"},
      .full_precision_because = "small differences add up in it",
      .default_schedule =
          [](int size) { return topology::static_schedule(topology::symmetric_exponential(size)); },
      .why_unfit_plan = [](const DistributedOptimizerOptions& /*options*/, const NeighborPlan& plan,
                           const NeighborPlan* /*before*/) { return why_unfit(plan); },
      .make =
          [](AlgorithmParts parts) {
            return std::make_unique<PowerGossip>(
                parts.context, parts.buckets, mixing_of(parts.options, parts.context.size()),
                static_cast<std::int64_t>(parts.number("low_rank")));
          }};
}

}  // namespace bluefog::optimizers
