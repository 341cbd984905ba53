#include "tests/support/gpu/torch_stand_in.hpp"

#include <ATen/EmptyTensor.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/Storage.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <future>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "bluefog_cpp/device/cuda/handles.hpp"
#include "tests/support/gpu/torch_place.hpp"

namespace bluefog::testing {
namespace {

/// Torch counts devices once in a process, and has a thread for each in backward passes.
constexpr int kDevices = 8;

/// torch has one of each in a process.
struct Registry {
  std::mutex mutex;
  std::array<std::shared_ptr<TorchPlace>, kDevices> places;
  struct Memory {
    std::size_t bytes = 0;
    int index = 0;
  };
  std::map<const std::byte*, Memory> memory;
};

Registry& registry() {
  static auto* const one = new Registry;  // tensors of static life may be freed after it
  return *one;
}

thread_local int current_device = 0;

/// The storage of one tensor.
struct Allocation {
  std::shared_ptr<TorchPlace> place;
  void* memory = nullptr;
  std::size_t bytes = 0;
};

// Memory is freed in the order of the stream, as torch's allocator hands it on.
void free_allocation(void* context) {
  const std::unique_ptr<Allocation> own(static_cast<Allocation*>(context));
  {
    const std::scoped_lock lock(registry().mutex);
    registry().memory.erase(static_cast<const std::byte*>(own->memory));
  }
  CudaStandIn* const cuda = own->place->cuda.get();
  const int index = own->place->index;
  const gpu::DeviceScope scope(*cuda, index);
  cuda->enqueue(own->place->stream, "torch's free",
                {{.memory = own->memory, .bytes = own->bytes, .writes = true}}, [] {});
  cuda->enqueue(own->place->stream, "torch's free", {}, [cuda, index, memory = own->memory] {
    const gpu::DeviceScope inner(*cuda, index);
    cuda->keep_freed(memory);
  });
}

/// torch's way to a device's streams and events.
class StandInGuard final : public c10::impl::DeviceGuardImplInterface {
 public:
  [[nodiscard]] c10::DeviceType type() const override { return c10::DeviceType::CUDA; }
  [[nodiscard]] c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    uncheckedSetDevice(device);
    return before;
  }
  [[nodiscard]] c10::Device getDevice() const override { return device_at(current_device); }
  void setDevice(c10::Device device) const override { uncheckedSetDevice(device); }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.has_index()) {
      current_device = device.index();
    }
  }
  [[nodiscard]] c10::DeviceIndex deviceCount() const noexcept override { return kDevices; }

  [[nodiscard]] c10::Stream getStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, device.has_index() ? device : getDevice());
  }
  [[nodiscard]] c10::Stream getDefaultStream(c10::Device device) const override {
    return getStream(device);
  }
  [[nodiscard]] c10::Stream exchangeStream(c10::Stream stream) const override { return stream; }
  [[nodiscard]] void* getStreamNativeHandle(c10::Stream stream) const override {
    return torch_place(stream.device_index())->stream;
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    torch_place(stream.device_index())->wait();
  }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex /*index*/,
              c10::EventFlag /*flag*/) const override {
    const auto place = torch_place(stream.device_index());
    const gpu::DeviceScope scope(*place->cuda, place->index);
    if (*event == nullptr) {
      *event = new Event{place, place->cuda->make_event()};
    }
    place->cuda->record(static_cast<Event*>(*event)->handle, place->stream);
  }
  void block(void* event, const c10::Stream& stream) const override {
    const auto place = torch_place(stream.device_index());
    const gpu::DeviceScope scope(*place->cuda, place->index);
    place->cuda->wait(place->stream, static_cast<Event*>(event)->handle);
  }
  [[nodiscard]] bool queryEvent(void* event) const override {
    const auto& [place, handle] = *static_cast<Event*>(event);
    const gpu::DeviceScope scope(*place->cuda, place->index);
    return place->cuda->has_happened(handle);
  }
  void synchronizeEvent(void* event) const override {
    ++static_cast<Event*>(event)->place->host_waits;
    while (!queryEvent(event)) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
  void destroyEvent(void* event, c10::DeviceIndex /*index*/) const noexcept override {
    const std::unique_ptr<Event> own(static_cast<Event*>(event));
    if (own) {
      const gpu::DeviceScope scope(*own->place->cuda, own->place->index);
      own->place->cuda->free_event(own->handle);
    }
  }

 private:
  struct Event {
    std::shared_ptr<TorchPlace> place;
    gpu::EventHandle handle = nullptr;
  };
  static c10::Device device_at(int index) {
    return {c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(index)};
  }
};

C10_REGISTER_GUARD_IMPL(CUDA, StandInGuard)

/// The answers that torch's part for the CPU asks of its part for CUDA.
struct StandInHooks final : at::CUDAHooksInterface {
  explicit StandInHooks(at::CUDAHooksArgs /*none*/) {}

  void init() const override {}
  [[nodiscard]] bool isBuilt() const override { return true; }
  [[nodiscard]] bool isAvailable() const override { return true; }
  [[nodiscard]] bool hasCUDA() const override { return true; }
  [[nodiscard]] int getNumGPUs() const override { return kDevices; }
  [[nodiscard]] c10::DeviceIndex deviceCount() const override { return kDevices; }
  [[nodiscard]] bool hasPrimaryContext(c10::DeviceIndex index) const override {
    return find_torch_place(index) != nullptr;
  }
  [[nodiscard]] c10::DeviceIndex current_device() const override { return getCurrentDevice(); }
  [[nodiscard]] c10::DeviceIndex getCurrentDevice() const override {
    return static_cast<c10::DeviceIndex>(bluefog::testing::current_device);
  }
  void setCurrentDevice(c10::DeviceIndex index) const override {
    bluefog::testing::current_device = index;
  }
  [[nodiscard]] c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    return static_cast<c10::DeviceIndex>(std::exchange(bluefog::testing::current_device, index));
  }
  [[nodiscard]] c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override {
    return exchangeDevice(index);
  }
  [[nodiscard]] c10::Device getDeviceFromPtr(void* memory) const override {
    return {c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(device_of_memory(memory))};
  }
};

using at::CUDAHooksRegistry;
using at::RegistererCUDAHooksRegistry;
C10_REGISTER_CLASS(CUDAHooksRegistry, CUDAHooks, StandInHooks)

}  // namespace

void TorchPlace::run(const std::string& what, const std::vector<Access>& accesses,
                     const std::function<void()>& compute) const {
  struct Turn {
    std::promise<void> begins;
    std::promise<void> ends;
  };
  const auto turn = std::make_shared<Turn>();
  {
    const gpu::DeviceScope scope(*cuda, index);
    cuda->enqueue(stream, what, accesses, [turn] {
      turn->begins.set_value();
      turn->ends.get_future().wait();
    });
  }
  struct End {
    Turn& turn;
    ~End() { turn.ends.set_value(); }
  };
  const End end{*turn};
  turn->begins.get_future().wait();
  compute();
}

void TorchPlace::wait() {
  ++host_waits;
  const gpu::DeviceScope scope(*cuda, index);
  cuda->synchronize(stream);
}

std::shared_ptr<TorchPlace> find_torch_place(int index) noexcept {
  const std::scoped_lock lock(registry().mutex);
  return index >= 0 && index < kDevices ? registry().places[static_cast<std::size_t>(index)]
                                        : nullptr;
}

std::shared_ptr<TorchPlace> torch_place(int index) {
  auto place = find_torch_place(index);
  TORCH_CHECK(place, "there is no CUDA device ", index, " now");
  return place;
}

int device_of_memory(const void* memory) {
  const auto* const begin = static_cast<const std::byte*>(memory);
  const std::scoped_lock lock(registry().mutex);
  auto found = registry().memory.upper_bound(begin);
  TORCH_CHECK(found != registry().memory.begin(), "memory of no CUDA device");
  --found;
  TORCH_CHECK(begin < found->first + found->second.bytes, "memory of no CUDA device");
  return found->second.index;
}

at::Tensor make_tensor_on(const std::shared_ptr<TorchPlace>& place, at::IntArrayRef sizes,
                          at::IntArrayRef strides, at::ScalarType dtype) {
  const auto type = c10::scalarTypeToTypeMeta(dtype);
  const std::size_t bytes = at::detail::computeStorageNbytes(sizes, strides, type.itemsize());
  void* memory = nullptr;
  {
    const gpu::DeviceScope scope(*place->cuda, place->index);
    memory = place->cuda->allocate(std::max<std::size_t>(bytes, 1));
  }
  {
    const std::scoped_lock lock(registry().mutex);
    registry().memory[static_cast<const std::byte*>(memory)] = {
        .bytes = std::max<std::size_t>(bytes, 1), .index = place->index};
  }
  auto* const own = new Allocation{place, memory, bytes};
  c10::Storage storage(
      c10::Storage::use_byte_size_t(), bytes,
      c10::DataPtr(memory, own, &free_allocation,
                   {c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(place->index)}),
      /*allocator=*/nullptr, /*resizable=*/false);
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CUDA), type);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return tensor;
}

TorchDevice::TorchDevice(std::shared_ptr<CudaStandIn> cuda, int index, gpu::StreamHandle stream)
    : place_(std::make_shared<TorchPlace>()) {
  place_->cuda = std::move(cuda);
  place_->index = index;
  place_->stream = stream;
  current_device = index;
  const std::scoped_lock lock(registry().mutex);
  registry().places.at(static_cast<std::size_t>(index)) = place_;
}

TorchDevice::~TorchDevice() {
  const std::scoped_lock lock(registry().mutex);
  registry().places[static_cast<std::size_t>(place_->index)] = nullptr;
}

void TorchDevice::change_stream(gpu::StreamHandle stream) {
  CudaStandIn& cuda = *place_->cuda;
  const gpu::DeviceScope scope(cuda, place_->index);
  const gpu::EventHandle event = cuda.make_event();
  cuda.record(event, place_->stream);
  cuda.wait(stream, event);
  cuda.free_event(event);
  place_->stream = stream;
}

int TorchDevice::host_waits() const { return place_->host_waits.load(); }

}  // namespace bluefog::testing
