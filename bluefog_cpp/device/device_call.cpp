#include "bluefog_cpp/device/device_call.hpp"

#include <fmt/format.h>

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
      envelope_(operation_->envelope()),
      consumption_(consumption),
      capture_(capture),
      streams_(*channel_, streams, capture),
      agreement_(rank, channel_->launches(),
                 channel_->link().offers() ? NeighborAgreement::Asking::EachTime
                                           : NeighborAgreement::Asking::Once,
                 [this] { return describe(); }) {
  envelope_.kind = placed(envelope_.kind);
  if (CallState::of(*operation_).is_in_place) {
    mark_in_place();
  }
  if (capture_) {
    meeting_.emplace(rank_, channel_->size());
  }
  const gpu::DeviceScope scope = channel_->enter();
  streams_.note_callers();
  done_ = std::make_shared<const gpu::Event>(channel_->take_event());
}

DeviceCall::~DeviceCall() {
  if (is_cut_short()) {
    payloads_.lose_kept();
  }
}

OpKind DeviceCall::placed(OpKind kind) const noexcept {
  return capture_ ? bluefog::captured(on_device(kind)) : on_device(kind);
}

std::string DeviceCall::describe() const {
  return fmt::format("rank {}, {}, {}", rank_, call_text(call_index()), envelope_.describe());
}

void DeviceCall::note_waiter(WaitingStream waiting) {
  if (consumption_ == Consumption::OnWait) {
    streams_.note_waiter(waiting);
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
    if (DevicePayloads::are_kept(exchange_)) {
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
    agreement_.begin(exchange_);
    payloads_.list_sends(exchange_);
    place_receives();
    describe_agreement(spec);
  }
  return true;
}

// Its messages are the call's own, so that ranks which make another call learn of it.
void DeviceCall::describe_meeting(ExchangeSpec& spec) {
  meeting_->describe(spec);
  spec.envelope = envelope_;
  spec.last = false;
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
  streams_.follow_callers();
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

// Ranks that have agreed in an earlier exchange launch this one without asking again.
void DeviceCall::place_receives() {
  try {
    payloads_.place_receives(exchange_, *channel_);
  } catch (const CudaError&) {
    const std::exception_ptr refusal = of_this_call(std::current_exception());
    if (!agreement_.partners().empty() && !channel_->link().offers() && !capture_) {
      channel_->end(refusal);
    }
    std::rethrow_exception(refusal);
  }
}

void DeviceCall::describe_agreement(ExchangeSpec& spec) {
  stage_ = Stage::Agreement;
  spec.supply = this;
  is_offered_ = false;
  agreement_.describe(spec);
  spec.envelope = envelope_;
  spec.last = false;
}

std::size_t DeviceCall::bytes_here() {
  if (!std::exchange(is_offered_, true)) {
    agreement_.complete();
    if (channel_->link().offers()) {
      const gpu::DeviceScope scope = channel_->enter();
      offer();
    }
  }
  return NeighborAgreement::message_bytes();
}

void DeviceCall::offer() {
  throw_if_ended();
  has_offer_ = true;
  try {
    channel_->link().offer(call_index(), payloads_.sends());
  } catch (const CudaError&) {
    std::rethrow_exception(of_this_call(std::current_exception()));
  }
  for (const DeviceSend& send : payloads_.sends()) {
    agreement_.set_offer(send);
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
  agreement_.receive(pieces[0].source_index, offset, pieces[0].data, bytes);
}

// Others may have launched their part when this rank fails, and part of its own may be on the
// stream.
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
  if (!capture_) {
    agreement_.note_launched();
  }
}

void DeviceCall::watch_what_there_is() noexcept {
  try {
    watch();
  } catch (const std::exception&) {  // NOLINT: the first error is on its way
    channel_->lose(shared_from_this());
    payloads_.lose_kept();
  }
}

void DeviceCall::watch() {
  if (capture_) {
    return;
  }
  channel_->cuda().record(done(), channel_->stream());
  channel_->watch({.call = call_index(),
                   .text = envelope_.describe(),
                   .partners = agreement_.partners(),
                   .done = done(),
                   .keep = shared_from_this(),
                   .cut_short = &cut_short_,
                   .is_whole = DevicePayloads::are_kept(exchange_)});
}

// The device still reads what was offered, and then nobody will. Kept is what it reads, and not the
// call: its error is for whoever waits for it.
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
  agreement_.check_launched();
  payloads_.note_offers(agreement_);
  if (payloads_.are_any()) {
    if (capture_) {
      channel_->link().capture(channel_->stream(), payloads_.sends(), payloads_.receives());
    } else {
      channel_->link().transfer(payloads_.sends(), payloads_.receives());
    }
  }
  payloads_.list_pieces(exchange_, agreement_);
  if (exchange_.pace == Pace::Together && exchange_.bytes > 0 &&
      !DevicePayloads::are_kept(exchange_)) {
    operation_->receive(0, exchange_.bytes, payloads_.pieces());
  }
  channel_->link().note_read(call_index());
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
    streams_.follow_waiter();
    operation_->receive(0, exchange_.bytes, payloads_.pieces());
    watch();
  } catch (const CudaError&) {
    watch_what_there_is();
    std::rethrow_exception(of_this_call(std::current_exception()));
  }
  payloads_.release_kept(done_);
}

void DeviceCall::finish_capture(WaitingStream waiting) {
  if (!std::exchange(is_held_back_, false)) {
    return;
  }
  const gpu::DeviceScope scope = channel_->enter();
  const auto lane = channel_->on_lane_of(capture_);
  streams_.follow_waiter_now(waiting);
  operation_->receive(0, exchange_.bytes, payloads_.pieces());
  channel_->cuda().record(done(), channel_->stream());
  payloads_.release_kept();  // later calls of the capture come after it
}

void DeviceCall::leave_capture() noexcept {
  try {
    const gpu::DeviceScope scope = channel_->enter();
    const auto lane = channel_->on_lane_of(capture_);
    if (channel_->cuda().capture_of(channel_->stream()).status == gpu::CaptureStatus::Active) {
      channel_->cuda().record(done(), channel_->stream());
      order_streams({});
    }
  } catch (const Error&) {  // NOLINT: the call's own error is on its way
  }
}

void DeviceCall::check_capture(WaitingStream waiting) {
  if (const std::string_view problem = streams_.capture_problem(waiting); !problem.empty()) {
    throw StateError(fmt::format("{}: {}", describe(), problem));
  }
}

}  // namespace bluefog
