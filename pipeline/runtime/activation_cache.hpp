#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bluefog_cpp/context.hpp"
#include "pipeline/pipeline.hpp"
#include "pipeline/runtime/spill_file.hpp"

namespace bluefog::pipeline {

/// Rows of bytes by sample, which the ranks of a host share: in memory those that fit there, in a
/// file the next ones, and no others.
///
/// A row is there for whoever asks by the stamp that it was stored with, and has the checksum that
/// it had then: else it is not there. Within a generation a row is stored once and never changed;
/// one of an earlier generation is there, for `find_older`, until its place is used again.
class ActivationCache {
 public:
  /// Collective. @throws InvalidArgument for options that make no cache, on the other ranks
  ///   PeerFailure.
  ActivationCache(Context& context, const CacheOptions& options);

  /// From now on earlier rows are old. All ranks have ended their reads when one of them begins a generation: it
  /// follows a collective call.
  void begin_generation(std::size_t row_bytes = 0);
  /// The size of rows of this generation, the same on all ranks that use it; 0: not known yet.
  void set_row_bytes(std::size_t row_bytes) noexcept { row_bytes_ = row_bytes; }
  [[nodiscard]] std::size_t row_bytes() const noexcept { return row_bytes_; }
  [[nodiscard]] std::int64_t samples() const noexcept { return options_.samples; }

  /// Fills `row`, of `row_bytes` bytes, if it is there. Its bytes are unspecified if it is not.
  [[nodiscard]] bool find(std::int64_t sample, std::uint64_t stamp, std::span<std::byte> row);
  /// As `find`, for a row of an earlier generation, which had rows of as many bytes. Another rank may
  /// store a new one in its place meanwhile: then it is not there.
  [[nodiscard]] bool find_older(std::int64_t sample, std::uint64_t stamp, std::span<std::byte> row);
  /// Stores a row where there is room for it and nobody has stored another one.
  /// @throws TransportError for a full disk.
  void store(std::int64_t sample, std::uint64_t stamp, std::span<const std::byte> row);

 private:
  /// The words of a sample, in memory that starts with zeros.
  struct Entry {
    std::uint64_t state = 0;  ///< generation and phase; read and written as an atomic
    std::uint64_t stamp = 0;
    std::uint64_t checksum = 0;
  };
  /// The memory of a row, or its place in the file.
  struct Place {
    std::byte* memory = nullptr;
    std::optional<std::uint64_t> offset{};  ///< in the file

    [[nodiscard]] bool exists() const noexcept { return memory != nullptr || offset.has_value(); }
  };

  [[nodiscard]] std::string why_useless() const;
  void share_memory(Context& context);
  std::string open_file(Context& context);
  [[nodiscard]] Place place_of(std::int64_t sample) const noexcept;
  /// Fills `row` with what is stored in state `expected`, if it is, and still is afterwards.
  bool read(std::int64_t sample, std::uint64_t expected, std::uint64_t stamp,
            std::span<std::byte> row);

  CacheOptions options_;
  std::vector<int> members_;          ///< ranks of this host that share memory, rising
  std::size_t own_ = 0;               ///< this rank's place among them
  std::size_t member_bytes_ = 0;      ///< rows' memory of each of them
  std::shared_ptr<std::byte> block_;  ///< this rank's
  std::vector<std::byte*> rows_;      ///< by member
  Entry* entries_ = nullptr;          ///< in the first member's block
  std::optional<SpillFile> file_;
  std::size_t row_bytes_ = 0;
  std::uint64_t generation_ = 0;
};

}  // namespace bluefog::pipeline
