#include "optimizers/buckets/bucket_memory.hpp"

#include <fmt/format.h>
#include <torch/torch.h>

#include <memory>

#include "bluefog_cpp/context/context_core.hpp"
#include "bluefog_cpp/error.hpp"
#include "bluefog_cpp/transport/host_memory.hpp"

namespace bluefog::optimizers {

MakeZeros bucket_memory(const Context& context) {
  auto memory = context.settings().shared_buckets ? context.core().shared_memory() : nullptr;
  return [memory = std::move(memory), log = context.log()](std::int64_t count,
                                                           const at::TensorOptions& options) {
    if (memory && options.device().is_cpu()) {
      const auto bytes = static_cast<std::size_t>(count) * options.dtype().itemsize();
      try {
        auto block = shm::HostMemory::allocate_zeros(memory, bytes);
        void* const data = block.get();
        return at::from_blob(
            data, {count}, [block = std::move(block)](void*) {}, options);
      } catch (const TransportError& error) {
        log.warning(fmt::format("parameters stay in memory of this rank alone: {}", error.what()));
      }
    }
    return at::zeros({count}, options);
  };
}

}  // namespace bluefog::optimizers
