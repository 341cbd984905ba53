#include "optimizers/algorithms/choco.hpp"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <utility>

#include "bluefog_cpp/error.hpp"
#include "ops/neighbor_allgather.hpp"
#include "optimizers/algorithms/registry/built_in_rows.hpp"
#include "optimizers/bucket_averages.hpp"
#include "optimizers/buckets/flat_state.hpp"
#include "optimizers/round_calls.hpp"

namespace bluefog::optimizers {
namespace {

constexpr std::int64_t kMostMatrices = 64;

using Bytes = std::shared_ptr<std::vector<std::byte>>;

/// Precedes a code: the copy that it is added to, and what that is afterwards. 0: zeros.
struct Head {
  std::int64_t before = 0;
  std::int64_t after = 0;

  friend bool operator==(const Head&, const Head&) = default;
};

void make_room(Bytes& bytes, std::size_t size) {
  if (bytes == nullptr || bytes->size() != size) {
    bytes = std::make_shared<std::vector<std::byte>>(size);
  }
}

BufferView view_of(const Bytes& bytes) {
  BufferView view;
  view.data = bytes->data();
  view.count = static_cast<std::int64_t>(bytes->size());
  view.dtype = Dtype::UInt8;
  view.owner = bytes;
  return view;
}

/// Calls `body(value, first, count)` for each parameter's place, with a value of their type: between
/// them lie zeros, which stay.
template <typename Body>
void for_each_parameter(const Bucket& bucket, const Body& body) {
  for (const Segment& segment : bucket.segments()) {
    const auto first = static_cast<std::size_t>(segment.offset);
    const auto count = static_cast<std::size_t>(segment.count());
    bucket.flat().scalar_type() == at::kDouble ? body(double(), first, count)
                                               : body(float(), first, count);
  }
}

/// The difference as a float32; of finite numbers a finite one.
template <typename Element>
float difference_of(Element value, Element copy) {
  const double exact = static_cast<double>(value) - static_cast<double>(copy);
  const auto rounded = static_cast<float>(exact);
  return std::isinf(rounded) && std::isfinite(exact)
             ? std::copysign(std::numeric_limits<float>::max(), rounded)
             : rounded;
}

/// to = x − copy, and zeros between the parameters.
void subtract(const Bucket& bucket, const at::Tensor& copy, std::span<float> to) {
  std::size_t end = 0;
  for_each_parameter(bucket, [&]<typename Element>(Element, std::size_t first, std::size_t count) {
    const auto* const x = bucket.flat().const_data_ptr<Element>();
    const auto* const told = copy.const_data_ptr<Element>();
    std::ranges::fill(to.subspan(end, first - end), 0.0F);
    end = first + count;
    for (std::size_t k = first; k < end; ++k) {
      to[k] = difference_of(x[k], told[k]);
    }
  });
  std::ranges::fill(to.subspan(end), 0.0F);
}

/// copy += difference. @return whether all of that is finite.
bool add(const Bucket& bucket, std::span<const float> difference, const at::Tensor& copy) {
  std::uint32_t largest = 0;
  for_each_parameter(bucket, [&]<typename Element>(Element, std::size_t first, std::size_t count) {
    auto* const to = copy.data_ptr<Element>();
    for (std::size_t k = first; k < first + count; ++k) {
      largest = std::max(largest, std::bit_cast<std::uint32_t>(difference[k]) & 0x7fffffffU);
      to[k] += difference[k];
    }
  });
  return largest < 0x7f800000U;  // infinity's bits
}

/// heard += difference; x += share (heard − told).
void add_and_approach(const Bucket& bucket, std::span<const float> difference, double share,
                      const at::Tensor& told, const at::Tensor& heard) {
  for_each_parameter(bucket, [&]<typename Element>(Element, std::size_t first, std::size_t count) {
    const auto* const own = told.const_data_ptr<Element>();
    auto* const theirs = heard.data_ptr<Element>();
    auto* const x = bucket.flat().data_ptr<Element>();
    const auto factor = static_cast<Element>(share);
    for (std::size_t k = first; k < first + count; ++k) {
      theirs[k] += difference[k];
      x[k] += factor * (theirs[k] - own[k]);
    }
  });
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

}  // namespace

std::string why_no_copies(const DistributedOptimizerOptions& options, const Schedule& schedule) {
  if (schedule.period_steps() <= kMostMatrices) {
    return {};
  }
  return fmt::format(
      "schedule: {} expects at most {} matrices, because ranks keep copies of the model for each of "
      "them, found a schedule that repeats after {} rounds",
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
      random_(seed()) {
  std::int64_t longest = 0;
  for (const Bucket& bucket : buckets) {
    const BufferView values = bucket.values();
    if (values.device.kind != DeviceKind::Cpu) {
      throw UnsupportedError(fmt::format(
          "rank {}, compression {}: expected parameters on the CPU, where codes are made, found {} "
          "on a device",
          context.rank(), compression_->name(), bucket.name()));
    }
    if (values.dtype != Dtype::Float32 && values.dtype != Dtype::Float64) {
      throw UnsupportedError(fmt::format(
          "rank {}, compression {}: expected parameters of float32 or float64, because small "
          "differences add up in copies, found {} of {}",
          context.rank(), compression_->name(), bucket.name(), name_of(values.dtype)));
    }
    names_.push_back(fmt::format("{} in {}", bucket.name(), compression_->name()));
    longest = std::max(longest, values.count);
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

std::size_t Choco::message_bytes(std::size_t bucket) const {
  return sizeof(Head) +
         compression_->bytes_of(static_cast<std::size_t>(buckets_[bucket].values().count));
}

// No two codes of all ranks and runs have the same.
std::int64_t Choco::new_identity() {
  std::int64_t identity = 0;
  while (identity == 0) {
    identity = static_cast<std::int64_t>(random_());
  }
  return identity;
}

// The message of a bucket, whose code is then a part of the own copy. Returns whether that is
// finite.
bool Choco::encode(const Copies& own, std::int64_t after, std::size_t bucket) {
  const Head head{.before = own.identity.item<std::int64_t>(), .after = after};
  const at::Tensor& copy = own.values[bucket];
  const std::span difference(difference_.data(), static_cast<std::size_t>(copy.numel()));
  make_room(outgoing_[bucket], message_bytes(bucket));
  std::memcpy(outgoing_[bucket]->data(), &head, sizeof head);
  const std::span code = std::span(*outgoing_[bucket]).subspan(sizeof head);
  subtract(buckets_[bucket], copy, difference);
  compression_->encode(difference, code);
  compression_->decode(code, difference);
  return add(buckets_[bucket], difference, copy);
}

// A copy that lacks a code would be wrong from now on, without a word.
std::vector<Choco::Following> Choco::followings(const Links& links, const Round& round) const {
  std::vector<Following> followings;
  for (std::size_t s = 0; s < links.sources.size(); ++s) {
    const auto head_in = [&](std::size_t b) {
      Head head;
      std::memcpy(&head, incoming_[b]->data() + s * message_bytes(b), sizeof head);
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
  }
  return followings;
}

void Choco::take_in(const Links& links, const Round& round) {
  const std::vector<Following> all = followings(links, round);
  for (std::size_t s = 0; s < links.sources.size(); ++s) {
    const Copies& theirs = links.sources[s];
    if (all[s].begins_anew) {
      forget(theirs);
    }
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      const std::span difference(difference_.data(),
                                 static_cast<std::size_t>(buckets_[b].flat().numel()));
      const std::size_t bytes = message_bytes(b);
      compression_->decode(std::span(*incoming_[b]).subspan(s * bytes, bytes).subspan(sizeof(Head)),
                           difference);
      add_and_approach(buckets_[b], difference,
                       consensus_step_size_ * round.plan->sources[s].weight, links.own.values[b],
                       theirs.values[b]);
    }
    theirs.identity.fill_(all[s].identity);
  }
}

bool Choco::exchange(const Links& links, const Round& round, const StepBucket& step_bucket) {
  const std::int64_t identity = new_identity();
  bool is_finite = true;
  run_overlapped_round(context_, buckets_.size(), works_, [&](std::size_t& issued) {
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      step_bucket(buckets_[b]);
      is_finite &= encode(links.own, identity, b);
      make_room(incoming_[b], links.sources.size() * message_bytes(b));
      const auto place = [view = view_of(incoming_[b])](const auto& /*counts*/) { return view; };
      ++issued;
      works_[b] = ops::neighbor_allgather_nonblocking(
          context_, view_of(outgoing_[b]), place, round.plan,
          {.name = names_[b], .check = b == 0 ? round.check : ops::PlanCheck::Trusted});
    }
  });
  links.own.identity.fill_(identity);
  return is_finite;
}

void Choco::step(const Round& round, const StepBucket& step_bucket) {
  const Links& links = links_[static_cast<std::size_t>(round.index) % links_.size()];
  try {
    const bool is_finite = exchange(links, round, step_bucket);
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

void Choco::forget(const Copies& copies) {
  zero(copies.values);
  copies.identity.zero_();
}

NamedTensors Choco::state() const {
  NamedTensors all;
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
                  {.name = "consensus_step_size",
                   .default_value = 1.0,
                   .meaning = "κ, from 0.001 to below 2",
                   .least = 0.001,
                   .below = 2.0}},
      .mixing = {.stochastic = Stochastic::RowsAndColumns},
      .full_precision_because = "small differences add up in its copies",
      .why_unfit_schedule = why_no_copies,
      .why_unfit_plan =
          [](const DistributedOptimizerOptions& options, const NeighborPlan& /*plan*/,
             const NeighborPlan* /*before*/) { return why_no_copies_for_plans(options); },
      .make =
          [](AlgorithmParts parts) {
            return std::make_unique<Choco>(
                parts.context, parts.buckets, mixing_of(parts.options, parts.context.size()),
                compression_of(parts.options), parts.number("consensus_step_size"));
          }};
}

}  // namespace bluefog::optimizers
