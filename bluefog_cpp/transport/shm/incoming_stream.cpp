#include "bluefog_cpp/transport/shm/incoming_stream.hpp"

#include <fmt/format.h>

#include "bluefog_cpp/base/ticks.hpp"
#include "bluefog_cpp/error.hpp"
#include "bluefog_cpp/transport/shm/copy_policy.hpp"
#include "bluefog_cpp/transport/shm/shared_text.hpp"

namespace bluefog::shm {
namespace {

/// The number of descriptors without payload that a reader takes before it notifies the writer.
constexpr std::uint64_t kInlineRelease = kStreamEntries / 4;

}  // namespace

Stream IncomingStream::no_stream_{};

bool IncomingStream::find_first_entry() {
  if (stream_ != &no_stream_) {
    return false;
  }
  const auto lane = static_cast<std::size_t>(lane_);
  auto* const found =
      group_->find<Stream>(writer_, group_->link(writer_, group_->own()).streams[lane]);
  if (found == nullptr) {
    return false;
  }
  stream_ = found;
  return has_entry();
}

const MessageHeader* IncomingStream::arrived() {
  if (has_message_) {
    return &header_;
  }
  if (!has_entry() && !find_first_entry()) {
    return nullptr;
  }
  const Entry& head = entry();
  header_.id.value = head.id;
  header_.bytes = head.message_bytes;
  header_.weight = head.weight;
  header_.envelope.count = head.count;
  header_.envelope.name_hash = head.name_hash;
  header_.envelope.kind = head.op_kind;
  header_.envelope.dtype = head.dtype;
  header_.envelope.name = {};
  if (head.name_hash != 0) {
    name_.assign(text_of(head.text));
    header_.envelope.name = name_;
  }
  has_message_ = true;
  used_ = 0;
  open_next_entry();
  return &header_;
}

bool IncomingStream::open_next_entry() {
  if (!has_entry()) {
    return false;
  }
  const Entry& next = entry();
  entry_open_ = true;
  if (next.entry_kind == EntryKind::Abort) {
    abort_reason_.emplace(text_of(next.text));
    release_entry();
    return false;
  }
  const bool is_here = next.carriage == Carriage::Inline && next.chunk_bytes <= kInlineBytes &&
                       next.chunk_bytes <= header_.bytes - used_;
  carriage_ = next.carriage;
  chunk_ = is_here ? next.payload.data() : find_chunk(next);
  chunk_left_ = next.chunk_bytes;
  return true;
}

const std::byte* IncomingStream::find_chunk(const Entry& entry) const {
  const std::byte* const chunk = entry.carriage == Carriage::Inline
                                     ? nullptr
                                     : group_->region(writer_).find(entry.place, entry.chunk_bytes);
  if (chunk == nullptr || entry.chunk_bytes > header_.bytes - used_) {
    throw InternalError(fmt::format(
        "shared memory: rank {} announced a chunk of {} bytes at {} where {} bytes were missing",
        group_->ranks()[writer_], entry.chunk_bytes, entry.place, header_.bytes - used_));
  }
  return chunk;
}

void IncomingStream::release_entry() {
  entry_open_ = false;
  ++position_;
  stream_->consumed.store(position_, std::memory_order_release);
  // A descriptor without payload frees nothing but its own place, of which the stream has many.
  if (carriage_ != Carriage::Inline || position_ % kInlineRelease == 0) {
    group_->head(writer_).doorbell.ring();
  }
}

std::span<const std::byte> IncomingStream::readable() {
  if (chunk_left_ == 0 && used_ < header_.bytes && !entry_open_ && !abort_reason_.has_value()) {
    open_next_entry();
  }
  if (chunk_left_ >= kLeastMeasured) {
    handed_out_ = ticks_now();
  }
  return {chunk_, chunk_left_};
}

void IncomingStream::consume(std::size_t bytes) {
  if (bytes >= kLeastMeasured) {
    note_read_cost(bytes);
  }
  chunk_ += bytes;
  chunk_left_ -= bytes;
  used_ += bytes;
  if (chunk_left_ == 0 && entry_open_) {
    release_entry();
  }
}

void IncomingStream::note_read_cost(std::size_t bytes) noexcept {
  auto& costs = stream_->read_cost[copy_class(lane_, header_.bytes)];
  auto& cost = costs[static_cast<std::size_t>(carriage_ == Carriage::Streamed ? CopyPath::Streamed
                                                                              : CopyPath::Cached)];
  const float sample = static_cast<float>(ticks_now() - handed_out_) / static_cast<float>(bytes);
  cost.store(updated_cost(cost.load(std::memory_order_relaxed), sample), std::memory_order_relaxed);
}

void IncomingStream::finish() {
  if (entry_open_) {
    release_entry();
  }
  has_message_ = false;
  abort_reason_.reset();
}

}  // namespace bluefog::shm
