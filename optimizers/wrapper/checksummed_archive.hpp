#pragma once

#include <string>

namespace torch::serialize {
class InputArchive;
class OutputArchive;
}  // namespace torch::serialize

namespace bluefog::optimizers {

/// Writes `archive` to `file`, and behind it one line with the CRC-32 of its bytes, which zip
/// readers pass over. The archive gets the key "checksum", so that the line cannot go unnoticed.
/// @throws InvalidArgument naming the file and the system's reason, as for a full disk.
void save_with_checksum(torch::serialize::OutputArchive& archive, const std::string& file);

/// Reads what `save_with_checksum` wrote, or an archive that has no checksum.
/// @throws InvalidArgument naming the file if its bytes are not those that were written; torch's
///   exceptions for what is no archive.
void load_with_checksum(torch::serialize::InputArchive& archive, const std::string& file);

}  // namespace bluefog::optimizers
