#pragma once

#include <torch/serialize/archive.h>

#include <string>

namespace bluefog::optimizers {

/// Writes a number or a text under a key of a serialised optimizer.
template <typename Value>
void write_value(torch::serialize::OutputArchive& archive, const std::string& key,
                 const Value& value) {
  archive.write(key, c10::IValue(value));
}

/// Reads what `write_value` wrote. @throws std::runtime_error if the key is missing, c10::Error for
/// another type.
template <typename Value>
void read_value(torch::serialize::InputArchive& archive, const std::string& key, Value& value) {
  c10::IValue found;
  archive.read(key, found);
  value = found.to<Value>();
}

}  // namespace bluefog::optimizers
