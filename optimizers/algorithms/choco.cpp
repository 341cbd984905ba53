#include "optimizers/algorithms/choco.hpp"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <span>
#include <utility>

#include "bluefog_cpp/error.hpp"
#include "ops/neighbor_allgather.hpp"
#include "optimizers/algorithms/codes/coded_rounds.hpp"
#include "optimizers/algorithms/codes/coded_values.hpp"
#include "optimizers/algorithms/codes/consensus_step.hpp"
#include "optimizers/algorithms/codes/copy_steps.hpp"
#include "optimizers/algorithms/registry/built_in_rows.hpp"
#include "optimizers/bucket_averages.hpp"
#include "optimizers/buckets/flat_state.hpp"
#include "optimizers/round_calls.hpp"

namespace bluefog::optimizers {
namespace {

constexpr std::int64_t kMostMatrices = 64;

using Bytes = std::shared_ptr<std::vector<std::byte>>;

/// Precedes a code: the copy that it is added to, and what that is afterwards. `before` is 0 if nothing
/// has been told yet, and values follow as they are.
struct Head {
  std::int64_t before = 0;
  std::int64_t after = 0;

  friend bool operator==(const Head&, const Head&) = default;
};

/// To that size; memory of a longer message goes back.
void set_size(std::vector<std::byte>& bytes, std::size_t size) {
  if (bytes.size() != size) {
    bytes = std::vector<std::byte>(size);
  }
}

void make_room(Bytes& bytes, std::size_t size) {
  bytes = bytes ? bytes : std::make_shared<std::vector<std::byte>>();
  set_size(*bytes, size);
}

BufferView view_of(std::vector<std::byte>& bytes, std::shared_ptr<const void> owner) {
  BufferView view;
  view.data = bytes.data();
  view.count = static_cast<std::int64_t>(bytes.size());
  view.dtype = Dtype::UInt8;
  view.owner = std::move(owner);
  return view;
}

std::uint64_t seed() {
  std::random_device device;
  return (static_cast<std::uint64_t>(device()) << 32U) | device();
}

std::string subject(const DistributedOptimizerOptions& options) {
  return options.algorithm == AlgorithmName::Choco
             ? std::string("choco")
             : fmt::format("{} with a compression", options.algorithm.text());
}

/// Local steps change nothing: values become their averages.
CodedRounds rounds_of(const Schedule& schedule, const ops::Compression& compression) {
  return {
      .schedule = schedule,
      .compression = compression,
      .update = [](std::span<double> theta, std::span<double> /*carried*/,
                   std::span<const double> average) { std::ranges::copy(average, theta.begin()); }};
}

std::string why_unfit_choco(const DistributedOptimizerOptions& options, const Schedule& schedule) {
  const std::string problem = why_no_copies(options, schedule);
  return problem.empty()
             ? why_unfit_step(options, rounds_of(schedule, *compression_of(options)), {})
             : problem;
}

std::unique_ptr<Algorithm> make_choco(const AlgorithmParts& parts) {
  const Schedule schedule = mixing_of(parts.options, parts.context.size());
  const auto compression = compression_of(parts.options);
  return std::make_unique<Choco>(parts.context, parts.buckets, schedule, compression,
                                 parts.number("consensus_step_size"));
}

}  // namespace

std::string why_no_copies(const DistributedOptimizerOptions& options, const Schedule& schedule) {
  if (schedule.period_steps() <= kMostMatrices) {
    return {};
  }
  return fmt::format(
      "schedule: {} expects at most {} matrices, because ranks keep copies of the model for each of "
      "them, found a schedule that repeats after {} rounds; choose another one, "
      "one-peer-exponential say",
      subject(options), kMostMatrices, schedule.period_steps());
}

std::string why_no_copies_for_plans(const DistributedOptimizerOptions& options) {
  return fmt::format(
      "{} expects a schedule, because its copies are due to links that come again, found a plan for "
      "one round",
      subject(options));
}

Choco::Choco(Context& context, std::vector<Bucket>& buckets, const Schedule& schedule,
             std::shared_ptr<const ops::Compression> compression, double consensus_step_size)
    : Algorithm(buckets),
      context_(context),
      compression_(std::move(compression)),
      consensus_step_size_(consensus_step_size),
      outgoing_(buckets.size()),
      incoming_(buckets.size()),
      works_(buckets.size()),
      start_(at::zeros({2}, at::kLong)),
      random_(seed()) {
  std::int64_t longest = 0;
  for (const Bucket& bucket : buckets) {
    check_coded(context, bucket, "compression " + compression_->name());
    names_.push_back(fmt::format("{} in {}", bucket.name(), compression_->name()));
    longest = std::max(longest, bucket.values().count);
  }
  difference_.resize(static_cast<std::size_t>(longest));
  for (std::int64_t step = 0; step < schedule.period_steps(); ++step) {
    links_.push_back(make_links(schedule.plan_for(context.rank(), step)->sources.size()));
  }
}

Choco::Links Choco::make_links(std::size_t source_count) const {
  const auto make_copies = [this] {
    return Copies{.values = make_states(buckets_), .identity = at::zeros({1}, at::kLong)};
  };
  Links links{.own = make_copies(), .sources = {}};
  for (std::size_t s = 0; s < source_count; ++s) {
    links.sources.push_back(make_copies());
  }
  return links;
}

std::size_t Choco::message_bytes(std::size_t bucket, bool begins_anew) const {
  const Bucket& values = buckets_[bucket];
  return sizeof(Head) +
         (begins_anew ? raw_bytes(values)
                      : compression_->bytes_of(static_cast<std::size_t>(values.values().count)));
}

// No two codes of all ranks and runs have the same.
std::int64_t Choco::new_identity() {
  std::int64_t identity = 0;
  while (identity == 0) {
    identity = static_cast<std::int64_t>(random_());
  }
  return identity;
}

// The message of a bucket, which the own copy then holds too. Returns whether that is finite.
bool Choco::tell(const Copies& own, std::int64_t after, std::size_t bucket) {
  const Head head{.before = own.identity.item<std::int64_t>(), .after = after};
  const bool begins_anew = head.before == 0;
  make_room(outgoing_[bucket], message_bytes(bucket, begins_anew));
  std::memcpy(outgoing_[bucket]->data(), &head, sizeof head);
  const std::span told = std::span(*outgoing_[bucket]).subspan(sizeof head);
  if (!begins_anew) {
    return encode(own.values[bucket], told, bucket);
  }
  std::memcpy(told.data(), buckets_[bucket].flat().const_data_ptr(), told.size());
  return take_raw(buckets_[bucket], told, own.values[bucket]);
}

bool Choco::encode(const at::Tensor& copy, std::span<std::byte> code, std::size_t bucket) {
  const std::span difference(difference_.data(), static_cast<std::size_t>(copy.numel()));
  subtract(buckets_[bucket], copy, difference);
  compression_->encode(difference, code);
  compression_->decode(code, difference);
  return add(buckets_[bucket], difference, copy);
}

std::span<const std::byte> Choco::message_of(std::size_t s, std::size_t bucket) const {
  const Incoming& all = *incoming_[bucket];
  std::size_t first = 0;
  for (std::size_t before = 0; before < s; ++before) {
    first += static_cast<std::size_t>(all.lengths[before]);
  }
  return std::span(all.bytes).subspan(first, static_cast<std::size_t>(all.lengths[s]));
}

void Choco::check_lengths(const Following& following, std::size_t s, int rank,
                          std::int64_t round) const {
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const std::size_t expected = message_bytes(b, following.begins_anew);
    if (message_of(s, b).size() != expected) {
      throw StateError(fmt::format(
          "rank {}, choco, round {}: expected {} bytes of rank {} for {}, found {}",
          context_.rank(), round, expected, rank, buckets_[b].name(), message_of(s, b).size()));
    }
  }
}

// A copy that lacks a code would be wrong from now on, without a word.
std::vector<Choco::Following> Choco::followings(const Links& links, const Round& round) const {
  std::vector<Following> followings;
  for (std::size_t s = 0; s < links.sources.size(); ++s) {
    const auto head_in = [&](std::size_t b) {
      Head head;
      const std::span message = message_of(s, b);
      std::memcpy(&head, message.data(), std::min(message.size(), sizeof head));
      return head;
    };
    const Head head = head_in(0);
    bool follows =
        head.before == 0 || head.before == links.sources[s].identity.item<std::int64_t>();
    for (std::size_t b = 1; b < buckets_.size(); ++b) {
      follows = follows && head_in(b) == head;
    }
    if (!follows) {
      throw StateError(fmt::format(
          "rank {}, choco, round {}: expected a code that follows on what is known of rank {}, "
          "found one that follows on something else: a round before has failed on this rank alone, "
          "or a rank alone has restarted or read other state; `restart` on all ranks goes on from "
          "here",
          context_.rank(), round.index, round.plan->sources[s].rank));
    }
    followings.push_back({.begins_anew = head.before == 0, .identity = head.after});
    check_lengths(followings.back(), s, round.plan->sources[s].rank, round.index);
  }
  return followings;
}

void Choco::try_followings(const std::vector<Following>& all) {
  for (std::size_t s = 0; s < all.size(); ++s) {
    for (std::size_t b = 0; b < buckets_.size() && !all[s].begins_anew; ++b) {
      compression_->decode(
          message_of(s, b).subspan(sizeof(Head)),
          std::span(difference_.data(), static_cast<std::size_t>(buckets_[b].flat().numel())));
    }
  }
}

void Choco::take_in(const Links& links, const Round& round) {
  const std::vector<Following> all = followings(links, round);
  for (std::size_t s = 0; s < links.sources.size(); ++s) {
    const Copies& theirs = links.sources[s];
    const double share = consensus_step_size_ * round.plan->sources[s].weight;
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      const std::span told = message_of(s, b).subspan(sizeof(Head));
      if (all[s].begins_anew) {
        take_raw(buckets_[b], told, theirs.values[b]);
        approach(buckets_[b], share, links.own.values[b], theirs.values[b]);
        continue;
      }
      const std::span difference(difference_.data(),
                                 static_cast<std::size_t>(buckets_[b].flat().numel()));
      compression_->decode(told, difference);
      add_and_approach(buckets_[b], difference, share, links.own.values[b], theirs.values[b]);
    }
    theirs.identity.fill_(all[s].identity);
  }
}

bool Choco::exchange(const Links& links, const Round& round, const StepBucket& step_bucket) {
  const std::int64_t identity = new_identity();
  bool is_finite = true;
  run_overlapped_round(context_, calls_due(), works_, [&](std::size_t& issued) {
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      step_bucket(buckets_[b]);
      is_finite &= tell(links.own, identity, b);
      incoming_[b] = incoming_[b] ? incoming_[b] : std::make_shared<Incoming>();
      const auto place = [messages = incoming_[b]](const std::vector<std::int64_t>& lengths) {
        messages->lengths = lengths;
        const std::int64_t bytes = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
        set_size(messages->bytes, static_cast<std::size_t>(bytes));
        return view_of(messages->bytes, messages);
      };
      ++issued;
      works_[b] = ops::neighbor_allgather_nonblocking(
          context_, view_of(*outgoing_[b], outgoing_[b]), place, round.plan,
          {.name = names_[b], .check = b == 0 ? round.check : ops::PlanCheck::Trusted});
    }
  });
  links.own.identity.fill_(identity);
  return is_finite;
}

void Choco::step(const Round& round, const StepBucket& step_bucket) {
  const Links& links = links_[static_cast<std::size_t>(round.index) % links_.size()];
  if (!has_compared_) {
    keep_start_once();
    const std::size_t due = calls_due();
    run_round(context_, due, [&](std::size_t& issued) {
      issued = 1;
      compare_start();
      issued = due;  // the round accounts for the others
    });
  }
  try {
    const bool is_finite = exchange(links, round, step_bucket);
    try_decoding(context_, *compression_, fmt::format("choco, round {}", round.index),
                 [&] { try_followings(followings(links, round)); });
    take_in(links, round);
    if (!is_finite) {
      forget(links.own);  // other parameters may come, and find their copy
    }
  } catch (...) {
    forget(links.own);  // nobody knows who has got the code: the next one begins anew
    // Calls that have timed out go on with theirs.
    std::ranges::fill(outgoing_, nullptr);
    std::ranges::fill(incoming_, nullptr);
    throw;
  }
  note_changes(buckets_);
}

NamedTensors Choco::state() const {
  NamedTensors all{{"start", start_}};
  const auto add = [&](const Copies& copies, const std::string& whose) {
    for (const auto& [name, tensor] : named(copies.values, "copy")) {
      all.push_back({whose + name, tensor});
    }
    all.push_back({whose + "identity", copies.identity});
  };
  for (std::size_t m = 0; m < links_.size(); ++m) {
    add(links_[m].own, fmt::format("matrix {}, own ", m));
    for (std::size_t s = 0; s < links_[m].sources.size(); ++s) {
      add(links_[m].sources[s], fmt::format("matrix {}, source {}, ", m, s));
    }
  }
  return all;
}

void Choco::restart() {
  start_.zero_();
  for (const Links& links : links_) {
    forget(links.own);
    std::ranges::for_each(links.sources, forget);
  }
}

AlgorithmRow choco_row() {
  return {
      .name = "choco",
      .aliases = {"choco_sgd"},
      .equation = "ψ = x − γ d; x̂ ← x̂ + C(ψ − x̂); x ← ψ + κ (W − I) x̂",
      .description = "Adapt-then-combine that sends codes of what has changed since the last one.",
      .source = "CHOCO-SGD, arXiv 1902.00340, 1907.09356",
      .overlap = "the local steps and the codes of the next buckets",
      .memory = {.copies = 1,
                 .copies_per_source = 1,
                 .note = "for each matrix of the schedule; 1 of float32 of the longest bucket",
                 .carried = "x̂ of this rank and of its sources"},
      .options = {{.name = "compression",
                   .default_value = "int4",
                   .meaning = "C, a name of `ops::compression_named`",
                   .is_field = true},
                  consensus_step_option()},
      .mixing = {.stochastic = Stochastic::RowsAndColumns},
      .full_precision_because = "small differences add up in its copies",
      .why_unfit_schedule = why_unfit_choco,
      .why_unfit_plan =
          [](const DistributedOptimizerOptions& options, const NeighborPlan& /*plan*/,
             const NeighborPlan* /*before*/) { return why_no_copies_for_plans(options); },
      .choose_numbers =
          [](const DistributedOptimizerOptions& options, const Schedule& schedule) {
            const auto compression = compression_of(options);
            return chosen_step(options, rounds_of(schedule, *compression), {});
          },
      .make = make_choco};
}

}  // namespace bluefog::optimizers
