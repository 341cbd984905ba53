#include "ops/calls/exchanges/shared_sum.hpp"

#include <algorithm>
#include <cstring>

#include "bluefog_cpp/base/copy.hpp"
#include "bluefog_cpp/context/context_core.hpp"
#include "bluefog_cpp/transport/host_memory.hpp"
#include "ops/calls/exchanges/sharded_reduction.hpp"

namespace bluefog::ops {
namespace {

/// The bytes that are summed at once: they stay in the nearest cache until they have been copied.
constexpr std::size_t kBlockBytes = std::size_t{16} << 10U;

}  // namespace

bool SharedSum::is_worth_asking(const Context& context, const Group& group,
                                const BufferView& output) {
  if (!is_long_enough_in_place(context, output) || group.peers.empty()) {
    return false;
  }
  const MachineLayout& hosts = context.hosts();
  return std::ranges::all_of(group.ranks, [&](int rank) {
    return hosts.machine_of(rank) == hosts.machine_of(context.rank());
  });
}

SharedSum::SharedSum(const Context& context, const Group& group, const ConstBufferView& input,
                     const BufferView& output, Fold rule)
    : memory_(context.core().shared_memory()),
      group_(group),
      output_(output),
      rule_(rule),
      sums_(arithmetic_on(context, output.device)),
      incoming_(group.peers.size()),
      offers_(group.size()) {
  Offer& own = offers_[group_.own];
  if (input.data == output.data) {
    own.place = memory_->place_of(output.data, output.bytes()).value_or(kNowhere);
  }
}

// Retires the buffer's place: ranks that heard of it may write to it, whatever became of the call.
SharedSum::~SharedSum() {
  const bool is_known = stage_ == InPlaceStage::Offers || stage_ == InPlaceStage::Receipts;
  if (is_known && offers_[group_.own].place != kNowhere) {
    memory_->retire(offers_[group_.own].place);
  }
}

InPlaceStep SharedSum::next(ExchangeSpec& spec) {
  switch (stage_) {
    case InPlaceStage::Begin:
      stage_ = InPlaceStage::Offers;
      describe(spec, &offers_[group_.own], sizeof(Offer));
      return InPlaceStep::Exchange;
    case InPlaceStage::Offers:
      if (!all_are_shared()) {
        stage_ = InPlaceStage::Over;
        return InPlaceStep::Declined;
      }
      sum_shard();
      stage_ = InPlaceStage::Receipts;
      describe(spec, nullptr, 0);
      return InPlaceStep::Exchange;
    case InPlaceStage::Receipts:
    case InPlaceStage::Over:
      break;
  }
  stage_ = InPlaceStage::Over;
  return InPlaceStep::Over;
}

void SharedSum::describe(ExchangeSpec& spec, const void* message, std::size_t bytes) {
  outgoing_ = {
      .data = static_cast<const std::byte*>(message), .bytes = bytes, .readers = group_.others()};
  for (std::size_t i = 0; i < incoming_.size(); ++i) {
    incoming_[i] = {.source = group_.peers[i], .bytes = bytes};
  }
  spec.outgoing = {&outgoing_, 1};
  spec.incoming = {incoming_.data(), incoming_.size()};
  spec.pace = Pace::Each;
  spec.last = false;
}

void SharedSum::receive(std::size_t offset, std::size_t bytes, std::span<const Piece> pieces) {
  const std::size_t place = group_.place_of_peer(pieces[0].source_index);
  std::memcpy(reinterpret_cast<std::byte*>(&offers_[place]) + offset, pieces[0].data, bytes);
}

// All ranks have the same offers before them, and come to the same answer.
bool SharedSum::all_are_shared() const noexcept {
  return std::ranges::all_of(offers_, [](const Offer& offer) { return offer.place != kNowhere; });
}

void SharedSum::sum_shard() {
  for (std::size_t place = 0; place < offers_.size(); ++place) {
    buffers_.push_back(memory_->at(group_.ranks[place], offers_[place].place, output_.bytes()));
  }
  operands_.resize(buffers_.size());
  const Shards shards{.bytes = output_.bytes(), .owners = group_.size()};
  const std::size_t end = shards.begin(group_.own + 1);
  for (std::size_t offset = shards.begin(group_.own); offset < end; offset += kBlockBytes) {
    sum_block(offset, std::min(kBlockBytes, end - offset));
  }
}

void SharedSum::sum_block(std::size_t offset, std::size_t bytes) {
  for (std::size_t place = 0; place < buffers_.size(); ++place) {
    operands_[place] = buffers_[place] + offset;
  }
  std::byte* const own = buffers_[group_.own] + offset;
  const std::span<const std::byte* const> operands(operands_.data(), operands_.size());
  sums_->fold(rule_, output_.dtype, own, operands, bytes);
  for (std::size_t i = 0; i < group_.peers.size(); ++i) {
    copy_bytes(buffers_[group_.place_of_peer(i)] + offset, own, bytes);
  }
}

}  // namespace bluefog::ops
