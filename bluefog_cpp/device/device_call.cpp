#include "bluefog_cpp/device/device_call.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "bluefog_cpp/error.hpp"

namespace bluefog {
namespace {

/// Calls make fewer exchanges.
constexpr std::uint32_t kPartingStep = 0x8000;

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
