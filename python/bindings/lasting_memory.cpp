#include "python/bindings/lasting_memory.hpp"

#include <c10/core/Storage.h>

#include <utility>

namespace bluefog::python {
namespace {

using SharedMemory = std::shared_ptr<c10::DataPtr>;

void release(void* shared) { delete static_cast<SharedMemory*>(shared); }

// The storage becomes one of several owners of its memory.
SharedMemory share_memory_of(const c10::Storage& storage) {
  const c10::DataPtr& present = storage.data_ptr();
  if (present.get_deleter() == &release) {
    return *static_cast<SharedMemory*>(present.get_context());
  }
  auto shared = std::make_shared<c10::DataPtr>();
  auto owner = std::make_unique<SharedMemory>(shared);
  c10::DataPtr replacement(present.get(), owner.get(), &release, present.device());
  owner.release();  // NOLINT: the replacement has it
  *shared = storage.unsafeGetStorageImpl()->set_data_ptr(std::move(replacement));
  return shared;
}

struct Held {
  c10::Storage storage;
  SharedMemory memory;
};

}  // namespace

std::shared_ptr<const void> lasting_memory(const at::Tensor& tensor) {
  const c10::Storage& storage = tensor.storage();
  // Storages that cannot be resized (shared between processes, NumPy's) keep their memory by
  // themselves, and may have an owner that others ask for.
  return std::make_shared<const Held>(
      Held{.storage = storage,
           .memory = storage.resizable() ? share_memory_of(storage) : SharedMemory()});
}

}  // namespace bluefog::python
