#pragma once

#include <torch/csrc/utils/pybind.h>

#include <cstddef>
#include <span>
#include <string>

#include "ops/compression.hpp"
#include "python/bindings/own/python_object.hpp"

namespace bluefog::python {

/// A code of Python's (`bluefog_cpp.torch.Compression`). Any thread: Python's methods run with the
/// interpreter's lock, so one at a time.
///
/// Python is given copies, and what it returns is copied: it may keep its tensors.
class PythonCompression final : public ops::Compression {
 public:
  /// @param code has `bytes_of`, `contraction`, `encode` and `decode`. With the interpreter's lock.
  PythonCompression(py::object code, std::string name);

  [[nodiscard]] std::string name() const override { return name_; }
  /// @throws InvalidArgument for less than one byte, and what Python raises, as all members.
  [[nodiscard]] std::size_t bytes_of(std::size_t count) const override;
  [[nodiscard]] double contraction(std::size_t count) const override;
  /// @throws InvalidArgument for anything but a tensor of that many bytes.
  void encode(std::span<const float> values, std::span<std::byte> code) const override;
  /// @throws InvalidArgument for anything but a tensor of that many values of float32.
  void decode(std::span<const std::byte> code, std::span<float> values) const override;

 private:
  PythonObject code_;
  std::string name_;
};

}  // namespace bluefog::python
