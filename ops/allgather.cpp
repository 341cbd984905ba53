#include <fmt/format.h>

#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "bluefog_cpp/base/copy.hpp"
#include "ops/collectives.hpp"
#include "ops/group.hpp"
#include "ops/validation.hpp"

namespace bluefog::ops {
namespace {

constexpr OpKind kKind = OpKind::Allgather;

/// First every rank's count to everybody, then the data.
class Allgather final : public Operation {
 public:
  Allgather(ConstBufferView input, AllocateGathered allocate, Group group, const OpOptions& options)
      : input_(std::move(input)),
        allocate_(std::move(allocate)),
        group_(std::move(group)),
        name_(options.name),
        // Counts may differ between ranks.
        envelope_(Envelope::make(kKind, input_.dtype, -1, name_)),
        counts_(group_.size()) {
    counts_[group_.own] = input_.count;
    for (const WeightedRank& peer : group_.peers) {
      incoming_.push_back({.source = peer, .bytes = sizeof(std::int64_t)});
    }
  }

  [[nodiscard]] const Envelope& envelope() const noexcept override { return envelope_; }

  bool next(ExchangeSpec& spec) override {
    spec.envelope = envelope_;
    spec.pace = Pace::Each;
    if (!knows_counts_) {
      outgoing_ = {.data = reinterpret_cast<const std::byte*>(&input_.count),
                   .bytes = sizeof(std::int64_t),
                   .readers = group_.peers};
      knows_counts_ = true;
      spec.last = false;
    } else {
      prepare_output();
      // From the result, in case that the input lies elsewhere in the result's memory.
      outgoing_ = {.data = static_cast<const std::byte*>(output_.data) + begins_[group_.own],
                   .bytes = input_.bytes(),
                   .readers = group_.peers};
      for (std::size_t i = 0; i < incoming_.size(); ++i) {
        incoming_[i].bytes = bytes_of(counts_[group_.place_of_peer(i)]);
      }
    }
    spec.outgoing = {&outgoing_, 1};
    spec.incoming = incoming_;
    return true;
  }

  void receive(std::size_t offset, std::size_t bytes, std::span<const Piece> pieces) override {
    const std::size_t place = group_.place_of_peer(pieces[0].source_index);
    std::byte* const to = begins_.empty() ? reinterpret_cast<std::byte*>(&counts_[place])
                                          : static_cast<std::byte*>(output_.data) + begins_[place];
    copy_bytes(to + offset, pieces[0].data, bytes);
  }

 private:
  [[nodiscard]] std::size_t bytes_of(std::int64_t count) const noexcept {
    return static_cast<std::size_t>(count) * size_of(input_.dtype);
  }

  void prepare_output() {
    std::vector<std::size_t> begins;
    std::int64_t total = 0;
    const auto element = static_cast<std::int64_t>(size_of(input_.dtype));
    for (std::size_t i = 0; i < counts_.size(); ++i) {
      if (counts_[i] < 0 ||
          counts_[i] > std::numeric_limits<std::int64_t>::max() / element - total) {
        throw InvalidArgument(fmt::format("{}: rank {} announced {} elements after {} of others",
                                          envelope_.describe(), group_.ranks[i], counts_[i],
                                          total));
      }
      begins.push_back(bytes_of(total));
      total += counts_[i];
    }
    output_ = allocate_(counts_);
    if (output_.count != total || output_.dtype != input_.dtype ||
        (output_.data == nullptr && total > 0) || output_.device.kind != DeviceKind::Cpu) {
      throw InvalidArgument(fmt::format(
          "{}: expected the allocation callback to return room for {}[{}] on the CPU, found {}[{}]",
          envelope_.describe(), name_of(input_.dtype), total, name_of(output_.dtype),
          output_.count));
    }
    begins_ = std::move(begins);
    if (input_.count > 0) {
      auto* const own = static_cast<std::byte*>(output_.data) + begins_[group_.own];
      std::memmove(own, input_.data, input_.bytes());
    }
  }

  ConstBufferView input_;
  AllocateGathered allocate_;
  Group group_;
  std::string name_;
  Envelope envelope_;
  bool knows_counts_ = false;
  std::vector<std::int64_t> counts_;
  /// Where in the output each rank's part begins, in bytes; empty until the counts are known.
  std::vector<std::size_t> begins_;
  BufferView output_{};
  Outgoing outgoing_{};
  std::vector<Incoming> incoming_;
};

void check_arguments(const Context& context, const ConstBufferView& input,
                     const AllocateGathered& allocate) {
  check_buffer(context, kKind, input);
  if (!allocate) {
    throw InvalidArgument(
        fmt::format("{}: expected a function that allocates the result, found an empty one",
                    where(context, kKind)));
  }
}

}  // namespace

Work allgather_nonblocking(Context& context, ConstBufferView input, AllocateGathered allocate,
                           const OpOptions& options) {
  validate(context, [&] { check_arguments(context, input, allocate); });
  return context.engine().submit(context.engine().make_operation<Allgather>(
      std::move(input), std::move(allocate), Group::everyone(context), options));
}

void allgather(Context& context, ConstBufferView input, AllocateGathered allocate,
               const OpOptions& options) {
  validate(context, [&] { check_arguments(context, input, allocate); });
  Allgather operation(std::move(input), std::move(allocate), Group::everyone(context), options);
  context.engine().run(operation);
}

}  // namespace bluefog::ops
