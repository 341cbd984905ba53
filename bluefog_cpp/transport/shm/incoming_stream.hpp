#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "bluefog_cpp/transport/message.hpp"
#include "bluefog_cpp/transport/shm/host_group.hpp"
#include "bluefog_cpp/transport/shm/region_layout.hpp"

namespace bluefog::shm {

/// Messages from one rank of the host on one lane, read where the writer has put them.
///
/// Its functions do the work of those of `Transport` with the same names.
class IncomingStream {
 public:
  /// @param writer its index in the group, which outlives this.
  IncomingStream(const HostGroup& group, std::size_t writer, Lane lane) noexcept
      : group_(&group), writer_(writer), lane_(lane) {}

  [[nodiscard]] const MessageHeader* arrived();
  [[nodiscard]] std::span<const std::byte> readable();
  void consume(std::size_t bytes);
  [[nodiscard]] bool at_end() const noexcept { return used_ == header_.bytes; }
  [[nodiscard]] const std::optional<std::string>& aborted() const noexcept { return abort_reason_; }
  void finish();

 private:
  [[nodiscard]] const Entry& entry() const noexcept {
    return stream_->entries[position_ % kStreamEntries];
  }
  [[nodiscard]] bool has_entry() const noexcept {
    return entry().turn.load(std::memory_order_acquire) == turn_of(position_, kStreamEntries);
  }
  /// Looks whether the writer has made the stream in which nothing has arrived yet.
  /// @return whether something has.
  [[nodiscard]] bool find_first_entry();
  bool open_next_entry();
  /// The place of a chunk that does not travel in its descriptor. @throws InternalError.
  [[nodiscard]] const std::byte* find_chunk(const Entry& entry) const;
  void release_entry();
  void note_read_cost(std::size_t bytes) noexcept;

  static Stream no_stream_;

  const HostGroup* group_;
  std::size_t writer_;
  Lane lane_;
  /// `no_stream_`, in which nothing arrives, until the writer's is seen.
  Stream* stream_ = &no_stream_;
  std::uint64_t position_ = 0;
  MessageHeader header_{};
  std::string name_{};
  const std::byte* chunk_ = nullptr;
  std::size_t chunk_left_ = 0;
  std::size_t used_ = 0;
  /// The time when the current chunk was handed out last.
  std::uint64_t handed_out_ = 0;
  Carriage carriage_ = Carriage::Inline;
  std::optional<std::string> abort_reason_{};
  bool has_message_ = false;
  bool entry_open_ = false;
};

}  // namespace bluefog::shm
