#include "pipeline/runtime/activation_cache.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "optimizers/buckets/fingerprint.hpp"
#include "python/bindings/bindings.hpp"

namespace bluefog::python {
namespace {

using Cache = pipeline::ActivationCache;
using Samples = std::vector<std::int64_t>;

/// A cache with the context that it was made over, which ends with it.
struct OwnedCache {
  std::shared_ptr<Context> context;
  Cache cache;
};

std::span<std::byte> row_of(const at::Tensor& rows, std::size_t row) {
  const std::size_t bytes = rows.nbytes() / static_cast<std::size_t>(rows.size(0));
  return {static_cast<std::byte*>(rows.data_ptr()) + row * bytes, bytes};
}

void check_rows(const Cache& cache, const Samples& samples, const at::Tensor& rows) {
  if (!rows.is_cpu() || !rows.is_contiguous() || rows.dim() < 1 ||
      rows.size(0) != static_cast<std::int64_t>(samples.size())) {
    throw InvalidArgument(
        fmt::format("activation cache: expected {} rows on the CPU, one behind the other, found {}",
                    samples.size(), rows.toString()));
  }
  for (const std::int64_t sample : samples) {
    if (sample < 0 || sample >= cache.samples()) {
      throw InvalidArgument(
          fmt::format("activation cache: expected numbers of samples from 0 to {}, found {}",
                      cache.samples() - 1, sample));
    }
  }
  if (!samples.empty() && row_of(rows, 0).size() != cache.row_bytes()) {
    throw InvalidArgument(fmt::format("activation cache: expected rows of {} bytes, found {}",
                                      cache.row_bytes(), row_of(rows, 0).size()));
  }
}

/// Fills the rows that are there. @return the places of the others.
Samples find(OwnedCache& owned, const Samples& samples, std::uint64_t stamp, const at::Tensor& rows,
             bool older) {
  check_rows(owned.cache, samples, rows);
  Samples missing;
  for (std::size_t row = 0; row < samples.size(); ++row) {
    const std::span<std::byte> place = row_of(rows, row);
    const bool is_there = older ? owned.cache.find_older(samples[row], stamp, place)
                                : owned.cache.find(samples[row], stamp, place);
    if (!is_there) {
      missing.push_back(static_cast<std::int64_t>(row));
    }
  }
  return missing;
}

void store(OwnedCache& owned, const Samples& samples, std::uint64_t stamp, const at::Tensor& rows) {
  check_rows(owned.cache, samples, rows);
  for (std::size_t row = 0; row < samples.size(); ++row) {
    owned.cache.store(samples[row], stamp, row_of(rows, row));
  }
}

}  // namespace

void bind_activation_cache(py::module_& module) {
  module.def(
      "fingerprint",
      [](const std::string& bytes) { return optimizers::fingerprint(bytes.data(), bytes.size()); },
      py::arg("bytes"));
  module.def(
      "tensor_digest",
      [](const at::Tensor& tensor) {
        return optimizers::fingerprint(tensor.const_data_ptr(), tensor.nbytes());
      },
      py::arg("tensor"), WithoutGil(), "Of a contiguous tensor on the CPU.");
  py::class_<OwnedCache>(module, "ActivationCache", py::release_gil_before_calling_cpp_dtor(),
                         "Rows by sample, which the ranks of a host share. See "
                         "pipeline/runtime/activation_cache.hpp.")
      .def(py::init([](std::shared_ptr<Context> context, std::int64_t samples,
                       std::int64_t memory_bytes, std::int64_t disk_bytes, std::string folder) {
             Context& over = *context;
             return new OwnedCache{std::move(context), Cache(over, {.samples = samples,
                                                                    .memory_bytes = memory_bytes,
                                                                    .disk_bytes = disk_bytes,
                                                                    .folder = std::move(folder)})};
           }),
           py::arg("context"), py::arg("samples"), py::arg("memory_bytes"), py::arg("disk_bytes"),
           py::arg("folder"), WithoutGil())
      .def("begin_generation", [](OwnedCache& owned) { owned.cache.begin_generation(); })
      .def(
          "set_row_bytes",
          [](OwnedCache& owned, std::size_t bytes) { owned.cache.set_row_bytes(bytes); },
          py::arg("bytes"))
      .def("find", &find, py::arg("samples"), py::arg("stamp"), py::arg("rows"), py::arg("older"),
           WithoutGil())
      .def("store", &store, py::arg("samples"), py::arg("stamp"), py::arg("rows"), WithoutGil());
}

}  // namespace bluefog::python
