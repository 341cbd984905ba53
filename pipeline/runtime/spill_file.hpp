#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "bluefog_cpp/base/files/unique_fd.hpp"

namespace bluefog::pipeline {

/// A file whose name is taken away once all that use it have opened it, so that nothing stays
/// behind, however they end.
class SpillFile {
 public:
  /// A new file in `folder`. @throws InvalidArgument naming the folder and the system's reason.
  static SpillFile make(const std::string& folder);
  /// The file of that name. @throws as `make`.
  static SpillFile open(const std::string& name);

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  void remove_name() const noexcept;

  /// @throws TransportError with the system's reason, as for a full disk.
  void write(std::uint64_t offset, std::span<const std::byte> bytes) const;
  /// @return whether there were so many bytes. @throws as `write`.
  [[nodiscard]] bool read(std::uint64_t offset, std::span<std::byte> bytes) const;

 private:
  SpillFile(std::string name, shm::UniqueFd fd);

  std::string name_;
  shm::UniqueFd fd_;
};

}  // namespace bluefog::pipeline
