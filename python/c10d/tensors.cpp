#include "python/c10d/tensors.hpp"

#include <ATen/MemoryOverlap.h>
#include <c10/core/Layout.h>
#include <c10/core/ScalarType.h>
#include <c10/core/Storage.h>
#include <c10/util/StringUtil.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "bluefog_cpp/error.hpp"
#include "optimizers/buckets/torch_dtype.hpp"
#include "python/c10d/host_copies.hpp"

namespace bluefog::c10d_backend {
namespace {

using optimizers::dtype_named;

void check_dense(const CallPlace& place, const at::Tensor& tensor) {
  if (!tensor.defined()) {
    throw InvalidArgument(
        fmt::format("{}: expected a tensor, found an undefined one", where(place)));
  }
  if (tensor.layout() != at::kStrided) {
    throw InvalidArgument(
        fmt::format("{}: expected a dense tensor, found one of layout {}, {}; give "
                    "tensor.to_dense(), or make modules with sparse=False",
                    where(place), c10::str(tensor.layout()), text_of(tensor)));
  }
  if (!tensor.is_cpu() && !tensor.is_cuda()) {
    throw UnsupportedError(
        fmt::format("{}: expected a tensor on the CPU or a CUDA device, found {}; name another "
                    "backend for that device, as in \"cpu:bluefog,xpu:xccl\"",
                    where(place), text_of(tensor)));
  }
}

/// Whether the call takes the elements where they are, as they are there.
bool are_in_order(const at::Tensor& tensor, Order order) {
  const bool is_as_stored = !tensor.is_conj() && !tensor.is_neg();
  return is_as_stored && (tensor.is_contiguous() ||
                          (order == Order::AsTheyLie && tensor.is_non_overlapping_and_dense()));
}

void check_places(const CallPlace& place, const at::Tensor& tensor) {
  const auto is_this = [&](const at::Tensor& result) { return result.is_same(tensor); };
  if (place.results != nullptr && at::has_internal_overlap(tensor) == at::MemOverlap::Yes &&
      std::ranges::any_of(*place.results, is_this)) {
    throw InvalidArgument(fmt::format(
        "{}: expected a result each of whose elements has a place of its own, found {} with strides "
        "[{}]; give tensor.contiguous()",
        where(place), text_of(tensor), fmt::join(tensor.strides(), ", ")));
  }
}

BufferView view_of(const CallPlace& place, const at::Tensor& tensor, Dtype dtype, Order order,
                   Keeps keeps) {
  const bool is_in_order = are_in_order(tensor, order);
  const bool is_copied = !tensor.is_cpu() || !is_in_order;
  if (!is_in_order) {
    check_places(place, tensor);
  }
  const at::Tensor& here =
      is_copied ? place.copies->of(tensor, is_in_order ? at::MemoryFormat::Preserve
                                                       : at::MemoryFormat::Contiguous)
                : tensor;
  const auto bytes = static_cast<std::int64_t>(here.nbytes());
  BufferView view{.data = here.mutable_data_ptr(),
                  .count = bytes / static_cast<std::int64_t>(size_of(dtype)),
                  .dtype = dtype};
  if (keeps == Keeps::Memory || is_copied) {
    view.owner = std::make_shared<const c10::Storage>(here.storage());
  }
  return view;
}

BufferView part_of(const BufferView& whole, std::int64_t begin, std::int64_t count) {
  BufferView part = whole;
  if (whole.data != nullptr) {
    part.data = static_cast<std::byte*>(whole.data) +
                static_cast<std::size_t>(begin) * size_of(whole.dtype);
  }
  part.count = count;
  return part;
}

}  // namespace

std::string where(const CallPlace& place) {
  return fmt::format("rank {}, {}", place.rank, place.call);
}

std::string text_of(const at::Tensor& tensor) {
  return fmt::format("{}[{}] on {}", c10::toString(tensor.scalar_type()),
                     fmt::join(tensor.sizes(), ", "), tensor.device().str());
}

BufferView values_of(CallPlace place, const at::Tensor& tensor, Order order, Keeps keeps) {
  check_dense(place, tensor);
  const auto dtype = dtype_named(tensor.is_complex() ? c10::toRealValueType(tensor.scalar_type())
                                                     : tensor.scalar_type());
  if (!dtype) {
    throw UnsupportedError(
        fmt::format("{}: expected float16, bfloat16, float32, float64, complex, bool or an integer "
                    "of up to 64 bits with a sign or of 8 bits without, found {}",
                    where(place), text_of(tensor)));
  }
  return view_of(place, tensor, *dtype, order, keeps);
}

BufferView bytes_of(CallPlace place, const at::Tensor& tensor, Order order, Keeps keeps) {
  check_dense(place, tensor);
  return view_of(place, tensor, dtype_named(tensor.scalar_type()).value_or(Dtype::UInt8), order,
                 keeps);
}

std::string form_of(const at::Tensor& tensor, Order order) {
  std::string form;
  if (!dtype_named(tensor.scalar_type())) {
    form = fmt::format("of {}", c10::toString(tensor.scalar_type()));
  }
  if (!tensor.is_contiguous() && are_in_order(tensor, order)) {
    // Where a dimension has one index its stride means nothing.
    std::vector<std::int64_t> strides;
    for (std::int64_t d = 0; d < tensor.dim(); ++d) {
      if (tensor.size(d) > 1) {
        strides.push_back(tensor.stride(d));
      }
    }
    form += fmt::format("{}of strides [{}]", form.empty() ? "" : ", ", fmt::join(strides, ", "));
  }
  return form;
}

std::string form_of(const at::Tensor& tensor, Order order, std::size_t index, std::size_t count) {
  const std::string form = form_of(tensor, order);
  return fmt::format("{}{}tensor {} of {}", form, form.empty() ? "" : ", ", index + 1, count);
}

std::vector<BufferView> equal_parts(CallPlace place, std::string_view what, const BufferView& whole,
                                    std::int64_t parts, std::int64_t elements) {
  if (whole.count != parts * elements) {
    throw InvalidArgument(fmt::format("{}: {}: expected {} parts of {} elements, found {} elements",
                                      where(place), what, parts, elements, whole.count));
  }
  std::vector<BufferView> views;
  views.reserve(static_cast<std::size_t>(parts));
  for (std::int64_t part = 0; part < parts; ++part) {
    views.push_back(part_of(whole, part * elements, elements));
  }
  return views;
}

std::vector<BufferView> parts_by_rows(CallPlace place, std::string_view what,
                                      const BufferView& whole, const at::Tensor& tensor,
                                      const std::vector<std::int64_t>& rows, std::int64_t ranks) {
  const std::int64_t all_rows = tensor.dim() == 0 ? 1 : tensor.size(0);
  if (rows.empty()) {
    if (all_rows % ranks != 0) {
      throw InvalidArgument(
          fmt::format("{}: {}: expected a first dimension that is a multiple of {} ranks, or the "
                      "numbers of rows of all parts, found {}",
                      where(place), what, ranks, text_of(tensor)));
    }
    return equal_parts(place, what, whole, ranks, whole.count / ranks);
  }
  std::int64_t sum = 0;
  for (const std::int64_t one : rows) {
    sum += one;
  }
  if (static_cast<std::int64_t>(rows.size()) != ranks || sum != all_rows) {
    throw InvalidArgument(
        fmt::format("{}: {}: expected {} numbers of rows with the sum {}, found [{}]", where(place),
                    what, ranks, all_rows, fmt::join(rows, ", ")));
  }
  const std::int64_t row = all_rows == 0 ? 0 : whole.count / all_rows;
  std::vector<BufferView> views;
  std::int64_t begin = 0;
  for (const std::int64_t one : rows) {
    if (one < 0) {
      throw InvalidArgument(fmt::format("{}: {}: expected numbers of rows of 0 or more, found [{}]",
                                        where(place), what, fmt::join(rows, ", ")));
    }
    views.push_back(part_of(whole, begin * row, one * row));
    begin += one;
  }
  return views;
}

void check_same_dtype(CallPlace place, const at::Tensor& one, const at::Tensor& other) {
  if (one.scalar_type() != other.scalar_type()) {
    throw InvalidArgument(fmt::format("{}: expected tensors of one dtype, found {} and {}",
                                      where(place), text_of(one), text_of(other)));
  }
}

at::Tensor& only(CallPlace place, std::string_view what, std::vector<at::Tensor>& tensors) {
  if (tensors.size() != 1) {
    throw InvalidArgument(
        fmt::format("{}: {}: expected one tensor, found {}", where(place), what, tensors.size()));
  }
  return tensors.front();
}

}  // namespace bluefog::c10d_backend
