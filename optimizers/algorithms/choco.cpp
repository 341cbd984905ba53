#include "optimizers/algorithms/choco.hpp"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstring>
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
constexpr const char* kUsualCompression = "int4";

/// Calls `body` with a value of the tensor's type.
template <typename Body>
void with_type_of(const at::Tensor& tensor, const Body& body) {
  tensor.scalar_type() == at::kDouble ? body(double()) : body(float());
}

/// to = x − copy, in float32.
void subtract(const at::Tensor& x, const at::Tensor& copy, std::span<float> to) {
  with_type_of(x, [&]<typename Element>(Element /*selects the type*/) {
    const auto* const from = x.const_data_ptr<Element>();
    const auto* const told = copy.const_data_ptr<Element>();
    for (std::size_t k = 0; k < to.size(); ++k) {
      to[k] = static_cast<float>(from[k] - told[k]);
    }
  });
}

/// copy += difference.
void add(std::span<const float> difference, const at::Tensor& copy) {
  with_type_of(copy, [&]<typename Element>(Element /*selects the type*/) {
    auto* const to = copy.data_ptr<Element>();
    for (std::size_t k = 0; k < difference.size(); ++k) {
      to[k] += difference[k];
    }
  });
}

/// heard += difference; x += share (heard − told).
void add_and_approach(std::span<const float> difference, double share, const at::Tensor& told,
                      const at::Tensor& heard, const at::Tensor& x) {
  with_type_of(x, [&]<typename Element>(Element /*selects the type*/) {
    const auto* const own = told.const_data_ptr<Element>();
    auto* const theirs = heard.data_ptr<Element>();
    auto* const to = x.data_ptr<Element>();
    const auto factor = static_cast<Element>(share);
    for (std::size_t k = 0; k < difference.size(); ++k) {
      theirs[k] += difference[k];
      to[k] += factor * (theirs[k] - own[k]);
    }
  });
}

std::string why_unfit_for_choco(const DistributedOptimizerOptions& /*options*/,
                                const Schedule& schedule) {
  if (schedule.period_steps() <= kMostMatrices) {
    return {};
  }
  return fmt::format(
      "choco expects a schedule of at most {} matrices, because ranks keep copies of the model for "
      "each of them, found one that repeats after {} rounds",
      kMostMatrices, schedule.period_steps());
}

}  // namespace

Choco::Choco(Context& context, std::vector<Bucket>& buckets, const Schedule& schedule,
             std::shared_ptr<const ops::Compression> compression, double consensus_step_size)
    : Algorithm(buckets),
      context_(context),
      compression_(std::move(compression)),
      consensus_step_size_(consensus_step_size),
      outgoing_(buckets.size()),
      incoming_(buckets.size()),
      works_(buckets.size()) {
  std::int64_t longest = 0;
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    const BufferView values = buckets[b].values();
    if (values.device.kind != DeviceKind::Cpu) {
      throw UnsupportedError(fmt::format(
          "rank {}, choco: expected parameters on the CPU, where codes are made, found {} on a "
          "device",
          context.rank(), buckets[b].name()));
    }
    names_.push_back(fmt::format("{} in {}", buckets[b].name(), compression_->name()));
    outgoing_[b].resize(message_bytes(b));
    longest = std::max(longest, values.count);
  }
  difference_.resize(static_cast<std::size_t>(longest));
  for (std::int64_t step = 0; step < schedule.period_steps(); ++step) {
    links_.push_back(make_links(schedule.plan_for(context.rank(), step)->sources.size()));
  }
}

Choco::Links Choco::make_links(std::size_t source_count) const {
  const auto make_copies = [this] {
    return Copies{.values = make_states(buckets_), .codes = at::zeros({1}, at::kLong)};
  };
  Links links{.own = make_copies(), .sources = {}};
  for (std::size_t s = 0; s < source_count; ++s) {
    links.sources.push_back(make_copies());
  }
  return links;
}

std::size_t Choco::message_bytes(std::size_t bucket) const {
  return sizeof(std::int64_t) +
         compression_->bytes_of(static_cast<std::size_t>(buckets_[bucket].values().count));
}

// The message of a bucket, whose code is then a part of the own copy.
void Choco::encode(const Copies& own, std::int64_t number, std::size_t bucket) {
  const at::Tensor& copy = own.values[bucket];
  const std::span difference(difference_.data(), static_cast<std::size_t>(copy.numel()));
  const std::span message(outgoing_[bucket]);
  const std::span code = message.subspan(sizeof number);
  subtract(buckets_[bucket].flat(), copy, difference);
  std::memcpy(message.data(), &number, sizeof number);
  compression_->encode(difference, code);
  compression_->decode(code, difference);
  add(difference, copy);
}

std::int64_t Choco::number_of(std::size_t bucket, std::size_t source) const {
  std::int64_t number = 0;
  std::memcpy(&number, incoming_[bucket].data() + source * message_bytes(bucket), sizeof number);
  return number;
}

// A copy that lacks a code would be wrong from now on, without a word.
void Choco::check_follows(const Links& links, const Round& round) const {
  for (std::size_t s = 0; s < links.sources.size(); ++s) {
    const auto known = links.sources[s].codes.item<std::int64_t>();
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      if (const std::int64_t number = number_of(b, s); number != known && number != 0) {
        throw StateError(fmt::format(
            "rank {}, choco: expected the code after {} of rank {}, found one after {}: a round "
            "before has failed on this rank alone; `restart` on all ranks goes on from here",
            context_.rank(), known, round.plan->sources[s].rank, number));
      }
    }
  }
}

void Choco::take_in(const Links& links, const Round& round) {
  check_follows(links, round);
  for (std::size_t s = 0; s < links.sources.size(); ++s) {
    const Copies& theirs = links.sources[s];
    if (!buckets_.empty() && number_of(0, s) == 0) {
      forget(theirs);  // it has begun anew
    }
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      const at::Tensor& flat = buckets_[b].flat();
      const std::span difference(difference_.data(), static_cast<std::size_t>(flat.numel()));
      const std::size_t bytes = message_bytes(b);
      compression_->decode(
          std::span(incoming_[b]).subspan(s * bytes, bytes).subspan(sizeof(std::int64_t)),
          difference);
      add_and_approach(difference, consensus_step_size_ * round.plan->sources[s].weight,
                       links.own.values[b], theirs.values[b], flat);
    }
    theirs.codes.add_(1);
  }
}

void Choco::exchange(const Links& links, const Round& round, const StepBucket& step_bucket) {
  const auto number = links.own.codes.item<std::int64_t>();
  run_overlapped_round(context_, buckets_.size(), works_, [&](std::size_t& issued) {
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      step_bucket(buckets_[b]);
      encode(links.own, number, b);
      incoming_[b].resize(links.sources.size() * message_bytes(b));
      const auto place = [this, b](const std::vector<std::int64_t>& /*counts*/) {
        BufferView view;
        view.data = incoming_[b].data();
        view.count = static_cast<std::int64_t>(incoming_[b].size());
        view.dtype = Dtype::UInt8;
        return view;
      };
      ++issued;
      works_[b] = ops::neighbor_allgather_nonblocking(
          context_,
          {outgoing_[b].data(), static_cast<std::int64_t>(outgoing_[b].size()), Dtype::UInt8},
          place, round.plan,
          {.name = names_[b], .check = b == 0 ? round.check : ops::PlanCheck::Trusted});
    }
  });
  links.own.codes.add_(1);
}

void Choco::step(const Round& round, const StepBucket& step_bucket) {
  const Links& links = links_[static_cast<std::size_t>(round.index) % links_.size()];
  try {
    exchange(links, round, step_bucket);
    take_in(links, round);
  } catch (...) {
    forget(links.own);  // nobody knows who has got the code: the next one begins anew
    throw;
  }
  note_changes(buckets_);
}

void Choco::forget(const Copies& copies) {
  zero(copies.values);
  copies.codes.zero_();
}

NamedTensors Choco::state() const {
  NamedTensors all;
  const auto add = [&](const Copies& copies, const std::string& whose) {
    for (const auto& [name, tensor] : named(copies.values, "copy")) {
      all.push_back({whose + name, tensor});
    }
    all.push_back({whose + "codes", copies.codes});
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
                 .note = "for each matrix of the schedule",
                 .carried = "x̂ of this rank and of its sources"},
      .options = {{.name = "compression",
                   .default_value = kUsualCompression,
                   .meaning = "C, a name of `ops::compression_named`",
                   .is_field = true},
                  {.name = "consensus_step_size",
                   .default_value = 1.0,
                   .meaning = "κ, from 0.001 to below 2",
                   .least = 0.001,
                   .below = 2.0}},
      .mixing = {.stochastic = Stochastic::RowsAndColumns},
      .full_precision_because = "small differences add up in its copies",
      .why_unfit_schedule = why_unfit_for_choco,
      .why_unfit_plan =
          [](const DistributedOptimizerOptions& /*options*/, const NeighborPlan& /*plan*/,
             const NeighborPlan* /*before*/) {
            return std::string(
                "choco expects a schedule, because its copies are due to links that come again, "
                "found a plan for one round");
          },
      .make =
          [](AlgorithmParts parts) {
            auto compression = parts.options.compression
                                   ? parts.options.compression
                                   : ops::compression_named(kUsualCompression);
            return std::make_unique<Choco>(
                parts.context, parts.buckets, mixing_of(parts.options, parts.context.size()),
                std::move(compression), parts.number("consensus_step_size"));
          }};
}

}  // namespace bluefog::optimizers
