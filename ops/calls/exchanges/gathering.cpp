#include "ops/calls/exchanges/gathering.hpp"

#include <fmt/format.h>

#include <cstring>
#include <limits>
#include <utility>

#include "bluefog_cpp/base/copy.hpp"
#include "bluefog_cpp/error.hpp"
#include "ops/calls/validation.hpp"

namespace bluefog::ops {

Gathering::Gathering(const Context& context, OpKind kind, ConstBufferView input,
                     AllocateGathered allocate, GatherPlan plan, std::string name,
                     const NeighborPlan* checked)
    : input_(std::move(input)),
      arithmetic_(arithmetic_on(context, input_.device)),
      allocate_(std::move(allocate)),
      plan_(std::move(plan)),
      rank_(context.rank()),
      name_(std::move(name)),
      // Counts may differ between ranks.
      envelope_(Envelope::make(kind, input_.dtype, -1, name_)),
      check_(checked != nullptr ? std::make_unique<PlanExchange>(context, *checked, envelope_)
                                : nullptr),
      counts_(plan_.sources.size() + (plan_.own_part >= 0 ? 1 : 0)) {
  if (plan_.own_part >= 0) {
    counts_[static_cast<std::size_t>(plan_.own_part)] = input_.count;
  }
  for (const WeightedRank& source : plan_.sources) {
    incoming_.push_back({.source = source, .bytes = sizeof(std::int64_t)});
  }
}

std::size_t Gathering::part_of_source(std::size_t i) const noexcept {
  const auto part = static_cast<std::int64_t>(i);
  return plan_.own_part >= 0 && part >= plan_.own_part ? i + 1 : i;
}

int Gathering::rank_of_part(std::size_t part) const noexcept {
  if (static_cast<std::int64_t>(part) == plan_.own_part) {
    return rank_;
  }
  const bool is_behind_own =
      plan_.own_part >= 0 && static_cast<std::int64_t>(part) > plan_.own_part;
  return plan_.sources[is_behind_own ? part - 1 : part].rank;
}

bool Gathering::next(ExchangeSpec& spec) {
  if (PlanExchange::comes_next(check_, spec)) {
    return true;
  }
  spec.envelope = envelope_;
  spec.pace = Pace::Each;
  outgoing_.readers = plan_.readers;
  if (stage_ == Stage::Counts) {
    outgoing_.data = reinterpret_cast<const std::byte*>(&input_.count);
    outgoing_.bytes = sizeof(std::int64_t);
    stage_ = Stage::Data;
    spec.last = false;
  } else {
    prepare_output();
    // Sends from the result where it has an own part: the input may lie elsewhere in its memory.
    outgoing_.data = plan_.own_part >= 0 ? static_cast<const std::byte*>(output_.data) +
                                               begins_[static_cast<std::size_t>(plan_.own_part)]
                                         : static_cast<const std::byte*>(input_.data);
    outgoing_.bytes = input_.bytes();
    spec.device = input_.device.kind;
    for (std::size_t i = 0; i < incoming_.size(); ++i) {
      const std::size_t part = part_of_source(i);
      incoming_[i].bytes = bytes_of(counts_[part]);
      incoming_[i].place = static_cast<std::byte*>(output_.data) + begins_[part];
    }
  }
  spec.outgoing = {&outgoing_, 1};
  spec.incoming = incoming_;
  return true;
}

void Gathering::receive(std::size_t offset, std::size_t bytes, std::span<const Piece> pieces) {
  if (check_ != nullptr) {
    check_->receive(offset, bytes, pieces[0]);
    return;
  }
  const std::size_t part = part_of_source(pieces[0].source_index);
  std::byte* const to = begins_.empty() ? reinterpret_cast<std::byte*>(&counts_[part])
                                        : static_cast<std::byte*>(output_.data) + begins_[part];
  copy_bytes(to + offset, pieces[0].data, bytes);
}

void Gathering::prepare_output() {
  std::vector<std::size_t> begins(counts_.size());
  std::vector<std::int64_t> counts;
  std::int64_t total = 0;
  const auto element = static_cast<std::int64_t>(size_of(input_.dtype));
  for (std::size_t place = 0; place < counts_.size(); ++place) {
    const std::size_t part = part_at(place);
    const std::int64_t count = counts_[part];
    if (count < 0 || count > std::numeric_limits<std::int64_t>::max() / element - total) {
      throw InvalidArgument(
          fmt::format("rank {}, {}: rank {} announced {} elements after {} of others", rank_,
                      envelope_.describe(), rank_of_part(part), count, total));
    }
    begins[part] = bytes_of(total);
    counts.push_back(count);
    total += count;
  }
  output_ = allocate_(counts);
  if (output_.count != total || output_.dtype != input_.dtype ||
      (output_.data == nullptr && total > 0) || output_.device != input_.device) {
    throw InvalidArgument(fmt::format(
        "rank {}, {}: expected the allocation callback to return room for {}[{}] on the input's "
        "device, found {}[{}]{}{}",
        rank_, envelope_.describe(), name_of(input_.dtype), total, name_of(output_.dtype),
        output_.count, output_.data == nullptr ? " at a null pointer" : "",
        output_.device != input_.device ? " on another one" : ""));
  }
  if (input_.device.kind != DeviceKind::Cpu && overlaps_in_part(input_, output_) &&
      plan_.own_part >= 0 &&
      static_cast<const std::byte*>(input_.data) !=
          static_cast<std::byte*>(output_.data) +
              begins[static_cast<std::size_t>(plan_.own_part)]) {
    throw InvalidArgument(fmt::format(
        "rank {}, {}: expected an input on a GPU to lie apart from the result or in its own place "
        "there, found it elsewhere in the result",
        rank_, envelope_.describe()));
  }
  keep_alive(std::exchange(output_.owner, nullptr));
  begins_ = std::move(begins);
  if (plan_.own_part >= 0 && input_.count > 0) {
    auto* const own =
        static_cast<std::byte*>(output_.data) + begins_[static_cast<std::size_t>(plan_.own_part)];
    arithmetic_->copy(own, static_cast<const std::byte*>(input_.data), input_.bytes());
  }
}

void check_gathering(const Context& context, OpKind kind, const ConstBufferView& input,
                     const AllocateGathered& allocate) {
  check_buffer(context, kind, input, Residence::Anywhere);
  if (!allocate) {
    throw InvalidArgument(
        fmt::format("{}: expected a function that allocates the result, found an empty one",
                    where(context, kind)));
  }
}

}  // namespace bluefog::ops
