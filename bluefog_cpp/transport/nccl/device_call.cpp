#include "bluefog_cpp/transport/nccl/device_call.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "bluefog_cpp/base/error.hpp"

namespace bluefog {
namespace {

/// As cudaMalloc aligns.
constexpr std::size_t kScratchAlignment = 256;
/// Calls make fewer exchanges.
constexpr std::uint32_t kPartingStep = 0x8000;
/// What kernels read at once.
constexpr std::uintptr_t kPackBytes = 16;

std::size_t rounded_up(std::size_t bytes) {
  return (bytes + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
}

bool is_cuda_error(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const CudaError&) {
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace

DeviceCall::DeviceCall(std::shared_ptr<DeviceChannel> channel, int rank,
                       std::shared_ptr<Operation> operation, const DeviceStreams& streams,
                       Consumption consumption, std::optional<std::uint64_t> capture)
    : channel_(std::move(channel)),
      rank_(rank),
      operation_(std::move(operation)),
      streams_(streams),
      envelope_(operation_->envelope()),
      consumption_(consumption),
      capture_(capture) {
  envelope_.kind = placed(envelope_.kind);
  const gpu::DeviceScope scope = channel_->enter();
  record_streams(ready_, {});
  done_ = std::make_shared<const gpu::Event>(channel_->take_event());
}

DeviceCall::~DeviceCall() {
  if (is_cut_short()) {
    kept_.lose();
  }
}

DeviceCall::SomeStreams DeviceCall::streams_with(WaitingStream waiting) const {
  SomeStreams streams{streams_[0]};
  const auto add = [&streams](gpu::StreamHandle stream) {
    if (std::ranges::find(streams, stream) == streams.end()) {
      streams.push_back(stream);
    }
  };
  add(streams_[1]);
  if (waiting) {
    add(*waiting);
  }
  return streams;
}

void DeviceCall::record_streams(ReadyEvents& ready, WaitingStream waiting) {
  for (const gpu::StreamHandle stream : streams_with(waiting)) {
    channel_->cuda().record(ready.emplace_back(channel_->take_event()).get(), stream);
  }
}

void DeviceCall::wait_for(const ReadyEvents& ready) {
  for (const gpu::Event& event : ready) {
    channel_->cuda().wait(channel_->stream(), event.get());
  }
}

void DeviceCall::note_waiter(WaitingStream waiting) {
  if (consumption_ == Consumption::OnWait) {
    std::call_once(has_waiter_, [this, waiting] {
      const gpu::DeviceScope scope = channel_->enter();
      record_streams(ready_at_wait_, waiting);
    });
  }
}

bool DeviceCall::next(ExchangeSpec& spec) {
  const gpu::DeviceScope scope = channel_->enter();
  const auto lane = channel_->on_lane_of(capture_);
  if (stage_ == Stage::Begin && capture_) {
    stage_ = Stage::Meeting;
    describe_meeting(spec);
    return true;
  }
  if (stage_ == Stage::Begin || stage_ == Stage::Meeting) {
    begin();
  }
  if (stage_ == Stage::Agreement) {
    launch();
    if (keeps_messages()) {
      if (capture_) {
        is_held_back_ = true;
        return end(spec);
      }
      stage_ = Stage::Rest;
      describe_rest(spec);
      return true;
    }
  }
  const bool was_last = stage_ == Stage::Agreement && exchange_.last;
  exchange_ = {};
  if (was_last || !operation_->next(exchange_)) {
    return end(spec);
  }
  if (exchange_.device == DeviceKind::Cpu) {
    stage_ = Stage::Host;
    spec = exchange_;
    spec.envelope.kind = placed(spec.envelope.kind);
    spec.last = false;
  } else {
    find_neighbors();
    list_sends();
    list_receives();
    describe_agreement(spec);
  }
  return true;
}

bool DeviceCall::end(ExchangeSpec& spec) {
  channel_->cuda().record(done(), channel_->stream());
  if (!capture_) {
    return false;
  }
  stage_ = Stage::Parting;
  describe_meeting(spec);
  spec.least_step = kPartingStep;
  spec.last = true;
  return true;
}

void DeviceCall::begin() {
  throw_if_ended();
  wait_for(ready_);
}

void DeviceCall::throw_if_ended() const {
  if (const auto failure = channel_->failure()) {
    std::rethrow_exception(failure);
  }
}

DeviceCall::Neighbor& DeviceCall::neighbor_of(int rank) {
  const auto found = std::ranges::find(neighbors_, rank,
                                       [](const Neighbor& neighbor) { return neighbor.rank.rank; });
  return found != neighbors_.end() ? *found
                                   : neighbors_.emplace_back(Neighbor{.rank = {.rank = rank}});
}

void DeviceCall::find_neighbors() {
  neighbors_.clear();
  for (const Outgoing& outgoing : exchange_.outgoing) {
    for (const WeightedRank& reader : outgoing.readers) {
      Neighbor& neighbor = neighbor_of(reader.rank);
      neighbor.own.sends += outgoing.bytes;
      neighbor.own.weight = reader.weight;
    }
  }
  for (const Incoming& incoming : exchange_.incoming) {
    neighbor_of(incoming.source.rank).own.expects += incoming.bytes;
  }
}

void DeviceCall::list_sends() {
  sends_.clear();
  for (const Outgoing& outgoing : exchange_.outgoing) {
    for (const WeightedRank& reader : outgoing.readers) {
      if (outgoing.bytes > 0) {
        sends_.push_back({outgoing.data, outgoing.bytes, reader.rank});
      }
    }
  }
}

// Ranks that have agreed in an earlier exchange launch this one without asking again.
void DeviceCall::list_receives() {
  try {
    place_receives();
  } catch (const CudaError&) {
    const std::exception_ptr refusal = of_this_call(std::current_exception());
    if (!partners_.empty() && !channel_->link().offers() && !capture_) {
      channel_->end(refusal);
    }
    std::rethrow_exception(refusal);
  }
}

std::exception_ptr DeviceCall::of_this_call(std::exception_ptr error) const {
  try {
    std::rethrow_exception(error);
  } catch (const CudaError& e) {
    return std::make_exception_ptr(
        CudaError(e.code(), fmt::format("{}: {}", describe(), e.what())));
  } catch (const NcclError& e) {
    return std::make_exception_ptr(
        NcclError(e.code(), fmt::format("{}: {}", describe(), e.what())));
  } catch (...) {
    return error;
  }
}

void DeviceCall::place_receives() {
  std::uintptr_t like = 0;  // what kernels read lies as what it is added to
  if (!exchange_.outgoing.empty()) {
    like = reinterpret_cast<std::uintptr_t>(exchange_.outgoing.back().data) % kPackBytes;
  }
  const bool stays = channel_->link().offers() && !keeps_messages();
  std::size_t scratch_bytes = 0;
  for (const Incoming& incoming : exchange_.incoming) {
    scratch_bytes += incoming.place == nullptr && !stays ? rounded_up(incoming.bytes + like) : 0;
  }
  std::byte* scratch = nullptr;
  if (keeps_messages()) {
    kept_ = channel_->take_memory(scratch_bytes);
    scratch = kept_.data();
  } else if (scratch_bytes > 0) {
    scratch = channel_->scratch(scratch_bytes);
  }
  receives_.clear();
  for (const Incoming& incoming : exchange_.incoming) {
    std::byte* place = incoming.place;
    if (place == nullptr && !stays) {
      place = scratch + like;
      scratch += rounded_up(incoming.bytes + like);
    }
    receives_.push_back(
        {.place = place, .bytes = incoming.bytes, .source = incoming.source.rank});
  }
}

std::size_t DeviceCall::bytes_here() {
  if (!std::exchange(is_offered_, true)) {
    for (Neighbor& neighbor : neighbors_) {
      neighbor.own.launched = channel_->launched_with(neighbor.rank.rank);
    }
    if (channel_->link().offers()) {
      const gpu::DeviceScope scope = channel_->enter();
      offer();
    }
  }
  return sizeof(Terms);
}

void DeviceCall::offer() {
  throw_if_ended();
  has_offer_ = true;
  try {
    channel_->link().offer(call_index(), {sends_.data(), sends_.size()});
  } catch (const CudaError&) {
    std::rethrow_exception(of_this_call(std::current_exception()));
  }
  for (const DeviceSend& send : sends_) {
    Terms& own = neighbor_of(send.reader).own;
    if (own.sends != send.bytes) {
      throw InternalError(fmt::format("rank {}, {}, {}: expected one payload for rank {}", rank_,
                                      call_text(call_index()), envelope_.describe(), send.reader));
    }
    own.offer = send.offer;
  }
}

// Two ranks agree once in a call: what they exchange later in it follows from the same numbers.
// Then nothing is sent, but the exchange counts on all ranks, whoever takes part in it. Offers are
// told each time.
void DeviceCall::describe_agreement(ExchangeSpec& spec) {
  stage_ = Stage::Agreement;
  const bool offers = channel_->link().offers();
  spec.supply = this;
  is_offered_ = false;
  outgoing_.clear();
  incoming_.clear();
  const auto [agreed, end] =
      std::ranges::stable_partition(neighbors_, [&](const Neighbor& neighbor) {
        return offers || std::ranges::find(partners_, neighbor.rank.rank) == partners_.end();
      });
  asked_ = static_cast<std::size_t>(agreed - neighbors_.begin());
  for (const Neighbor& neighbor : std::span(neighbors_).first(asked_)) {
    outgoing_.push_back({.data = reinterpret_cast<const std::byte*>(&neighbor.own),
                         .bytes = sizeof(Terms),
                         .readers = {&neighbor.rank, 1}});
    incoming_.push_back({.source = neighbor.rank, .bytes = sizeof(Terms)});
    if (std::ranges::find(partners_, neighbor.rank.rank) == partners_.end()) {
      partners_.push_back(neighbor.rank.rank);
    }
  }
  spec.envelope = envelope_;
  spec.outgoing = outgoing_;
  spec.incoming = incoming_;
  spec.pace = Pace::Each;
  spec.last = false;
}

void DeviceCall::receive(std::size_t offset, std::size_t bytes, std::span<const Piece> pieces) {
  if (stage_ == Stage::Meeting || stage_ == Stage::Parting) {
    return;
  }
  if (stage_ == Stage::Host) {
    operation_->receive(offset, bytes, pieces);
    return;
  }
  if (stage_ == Stage::Rest) {
    combine();
    return;
  }
  Neighbor& neighbor = neighbors_[pieces[0].source_index];
  std::memcpy(reinterpret_cast<std::byte*>(&neighbor.theirs) + offset, pieces[0].data, bytes);
  if (offset + bytes == sizeof(Terms)) {
    check_terms(neighbor);
  }
}

// A rank launches when its own neighbours agree: one of this rank's may then have failed the call here.
// Not before the launch: a neighbour that is ahead has said so when this rank had not come so far.
void DeviceCall::check_launched() const {
  for (const auto& [rank, own, theirs] : std::span(neighbors_).first(asked_)) {
    if (own.launched != theirs.launched) {
      throw PeerFailure(
          rank.rank,
          fmt::format("{}: rank {} has launched {} exchanges with this rank so far, which has "
                      "launched {}: an earlier call failed on the one when the other had launched it",
                      describe(), rank.rank, theirs.launched, own.launched));
    }
  }
}

void DeviceCall::check_terms(const Neighbor& neighbor) const {
  const auto& [rank, own, theirs] = neighbor;
  if (own.sends != theirs.expects || own.expects != theirs.sends) {
    throw MismatchError(
        fmt::format("rank {}, {}, {}: senders and receivers do not match: rank {} sends {} bytes "
                    "to rank {}, which "
                    "expects {}; rank {} sends {} bytes to rank {}, which expects {}",
                    rank_, call_text(call_index()), envelope_.describe(), rank_, own.sends,
                    rank.rank, theirs.expects, rank.rank, theirs.sends, rank_, own.expects));
  }
}

// Others may have launched their part when this rank fails, and part of its own may be on the stream.
void DeviceCall::launch() {
  try {
    enqueue();
    watch();
  } catch (...) {
    const std::exception_ptr why = of_this_call(std::current_exception());
    if (!capture_) {
      watch_what_there_is();
    }
    if (!capture_ || !is_cuda_error(why)) {
      channel_->end(why);
    }
    std::rethrow_exception(why);
  }
  has_offer_ = false;
  if (!capture_ && !channel_->link().offers()) {
    for (const Neighbor& neighbor : neighbors_) {
      if (neighbor.own.sends + neighbor.own.expects > 0) {  // else there is nothing to mistake
        channel_->note_launched(neighbor.rank.rank);
      }
    }
  }
}

void DeviceCall::watch_what_there_is() noexcept {
  try {
    watch();
  } catch (const std::exception&) {  // NOLINT: the first error is on its way
    channel_->lose(shared_from_this());
    kept_.lose();
  }
}

void DeviceCall::watch() {
  if (capture_) {
    return;
  }
  channel_->cuda().record(done(), channel_->stream());
  channel_->watch({.call = call_index(),
                   .text = envelope_.describe(),
                   .partners = partners_,
                   .done = done(),
                   .keep = shared_from_this(),
                   .cut_short = &cut_short_,
                   .is_whole = keeps_messages()});
}

// The device still reads what was offered, and then nobody will. Kept is what it reads, and not the call:
// its error is for whoever waits for it.
void DeviceCall::give_up() noexcept {
  if (!has_offer_) {
    return;
  }
  try {
    const gpu::DeviceScope scope = channel_->enter();
    channel_->cuda().record(done(), channel_->stream());
    using Kept = std::pair<std::shared_ptr<const Operation>, std::shared_ptr<const gpu::Event>>;
    channel_->watch({.call = call_index(),
                     .text = envelope_.describe(),
                     .done = done(),
                     .keep = std::make_shared<const Kept>(operation_, done_)});
  } catch (const std::exception&) {  // NOLINT: the first error is on its way
  }
}

void DeviceCall::enqueue() {
  throw_if_ended();
  check_launched();
  for (DeviceReceive& receive : receives_) {
    receive.offer = neighbor_of(receive.source).theirs.offer;
  }
  const auto brings = [](const DeviceReceive& receive) { return receive.bytes > 0; };
  if (!sends_.empty() || std::ranges::any_of(receives_, brings)) {
    if (capture_) {
      channel_->link().capture(channel_->stream(), {sends_.data(), sends_.size()},
                               {receives_.data(), receives_.size()});
    } else {
      channel_->link().transfer({sends_.data(), sends_.size()},
                                {receives_.data(), receives_.size()});
    }
  }
  pieces_.clear();
  for (std::size_t i = 0; i < exchange_.incoming.size(); ++i) {
    const Incoming& incoming = exchange_.incoming[i];
    if (incoming.place == nullptr) {
      const double sent_with = neighbor_of(incoming.source.rank).theirs.weight;
      pieces_.push_back({.data = receives_[i].data,
                         .weight = incoming.source.weight * sent_with,
                         .source_index = i});
    }
  }
  if (exchange_.pace == Pace::Together && exchange_.bytes > 0 && !keeps_messages()) {
    operation_->receive(0, exchange_.bytes, {pieces_.data(), pieces_.size()});
  }
  channel_->link().note_read(call_index());
}

bool DeviceCall::keeps_messages() const noexcept {
  return exchange_.consumption == Consumption::OnWait && exchange_.bytes > 0;
}

// Without a message, and so without a place among those of other calls: the engine gives it its one
// byte once somebody waits.
void DeviceCall::describe_rest(ExchangeSpec& spec) const {
  spec.envelope = envelope_;
  spec.consumption = Consumption::OnWait;
  spec.bytes = 1;
  spec.last = exchange_.last;
}

void DeviceCall::combine() {
  const gpu::DeviceScope scope = channel_->enter();
  throw_if_ended();
  try {
    wait_for(ready_at_wait_);
    operation_->receive(0, exchange_.bytes, {pieces_.data(), pieces_.size()});
    watch();
  } catch (const CudaError&) {
    watch_what_there_is();
    std::rethrow_exception(of_this_call(std::current_exception()));
  }
  kept_.note_use(done_);
  kept_ = {};  // the next call may have it when the device is done
}

void DeviceCall::order_streams(WaitingStream waiting) {
  const gpu::DeviceScope scope = channel_->enter();
  for (const gpu::StreamHandle stream : streams_with(waiting)) {
    channel_->cuda().wait(stream, done());
  }
}

}  // namespace bluefog
