#include "python/bindings/own/python_compression.hpp"

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/python_variable.h>

#include <cstring>
#include <string_view>
#include <utility>

#include "bluefog_cpp/error.hpp"
#include "optimizers/parameter.hpp"

namespace bluefog::python {
namespace {

template <typename Element>
at::Tensor copy_of(std::span<Element> elements, at::ScalarType type) {
  at::Tensor copy = at::empty({static_cast<std::int64_t>(elements.size())}, type);
  std::memcpy(copy.mutable_data_ptr(), elements.data(), elements.size_bytes());
  return copy;
}

/// Copies what a method has returned to `to`.
template <typename Element>
void take(const py::object& returned, std::span<Element> to, at::ScalarType type,
          std::string_view where) {
  const auto expected = static_cast<std::int64_t>(to.size());
  const bool is_tensor = THPVariable_Check(returned.ptr());
  const at::Tensor tensor = is_tensor ? returned.cast<at::Tensor>() : at::Tensor();
  if (!is_tensor || tensor.scalar_type() != type || !tensor.is_cpu() || tensor.dim() != 1 ||
      tensor.numel() != expected) {
    throw InvalidArgument(fmt::format(
        "{}: expected a tensor of {}[{}] on the CPU, found {}", where,
        type == at::kByte ? "uint8" : "float32", expected,
        is_tensor ? optimizers::describe(tensor) : std::string(Py_TYPE(returned.ptr())->tp_name)));
  }
  std::memcpy(to.data(), tensor.contiguous().const_data_ptr(), to.size_bytes());
}

}  // namespace

PythonCompression::PythonCompression(py::object code, std::string name)
    : code_(std::move(code)), name_(std::move(name)) {}

std::size_t PythonCompression::bytes_of(std::size_t count) const {
  const auto bytes =
      in_python([&] { return code_.get().attr("bytes_of")(count).cast<std::int64_t>(); });
  if (bytes < 1) {
    throw InvalidArgument(fmt::format("code {}, bytes_of({}): expected at least one byte, found {}",
                                      name_, count, bytes));
  }
  return static_cast<std::size_t>(bytes);
}

double PythonCompression::contraction(std::size_t count) const {
  return in_python([&] { return code_.get().attr("contraction")(count).cast<double>(); });
}

void PythonCompression::encode(std::span<const float> values, std::span<std::byte> code) const {
  in_python([&] {
    take(code_.get().attr("encode")(copy_of(values, at::kFloat)), code, at::kByte,
         fmt::format("code {}, encode", name_));
  });
}

void PythonCompression::decode(std::span<const std::byte> code, std::span<float> values) const {
  in_python([&] {
    take(code_.get().attr("decode")(copy_of(code, at::kByte), values.size()), values, at::kFloat,
         fmt::format("code {}, decode", name_));
  });
}

}  // namespace bluefog::python
