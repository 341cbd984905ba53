// CUDA's driver API behind the table.
#include <cuda.h>
#include <fmt/format.h>

#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bluefog_cpp/device/cuda/cuda_api.hpp"
#include "bluefog_cpp/device/cuda/shared_object.hpp"
#include "bluefog_cpp/error.hpp"

// The names that cuda.h's macros give to functions are those of their present versions.
#define BF_TEXT_OF(name) #name
#define BF_TEXT(name) BF_TEXT_OF(name)
#define BF_DRIVER_FUNCTION(name) decltype(&::name) name##_ = nullptr
#define BF_BIND(name) library.bind(name##_, BF_TEXT(name))

namespace bluefog::gpu {
namespace {

CUdeviceptr address_of(const void* memory) { return reinterpret_cast<CUdeviceptr>(memory); }

class Driver final : public CudaApi {
 public:
  explicit Driver(const SharedObject& library) {
    BF_BIND(cuInit);
    BF_BIND(cuGetErrorName);
    BF_BIND(cuGetErrorString);
    BF_BIND(cuDeviceGet);
    BF_BIND(cuDeviceGetCount);
    BF_BIND(cuDevicePrimaryCtxRetain);
    BF_BIND(cuCtxPushCurrent);
    BF_BIND(cuCtxPopCurrent);
    BF_BIND(cuCtxGetCurrent);
    BF_BIND(cuCtxGetStreamPriorityRange);
    BF_BIND(cuStreamCreateWithPriority);
    BF_BIND(cuStreamDestroy);
    BF_BIND(cuStreamWaitEvent);
    // The first version of this function, which all drivers have, tells all that is needed.
    library.bind(cuStreamGetCaptureInfo_, "cuStreamGetCaptureInfo");
    BF_BIND(cuThreadExchangeStreamCaptureMode);
    BF_BIND(cuEventCreate);
    BF_BIND(cuEventDestroy);
    BF_BIND(cuEventRecord);
    BF_BIND(cuEventQuery);
    BF_BIND(cuIpcGetEventHandle);
    BF_BIND(cuIpcOpenEventHandle);
    BF_BIND(cuIpcGetMemHandle);
    BF_BIND(cuIpcOpenMemHandle);
    BF_BIND(cuIpcCloseMemHandle);
    BF_BIND(cuCtxEnablePeerAccess);
    BF_BIND(cuMemAlloc);
    BF_BIND(cuMemFree);
    BF_BIND(cuMemHostAlloc);
    BF_BIND(cuMemFreeHost);
    BF_BIND(cuMemcpyAsync);
    BF_BIND(cuMemsetD8Async);
    BF_BIND(cuModuleLoadData);
    BF_BIND(cuModuleGetFunction);
    BF_BIND(cuLaunchKernel);
    check(cuInit_(0), "cuInit");
  }

  int device_count() override {
    int count = 0;
    check(cuDeviceGetCount_(&count), "cuDeviceGetCount");
    return count;
  }

  void enter(int device) override {
    check(cuCtxPushCurrent_(primary_context(device)), "cuCtxPushCurrent");
  }

  void leave() override {
    CUcontext left = nullptr;
    check(cuCtxPopCurrent_(&left), "cuCtxPopCurrent");
  }

  StreamHandle make_stream() override {
    int lowest = 0;
    int highest = 0;
    check(cuCtxGetStreamPriorityRange_(&lowest, &highest), "cuCtxGetStreamPriorityRange");
    CUstream stream = nullptr;
    check(cuStreamCreateWithPriority_(&stream, CU_STREAM_NON_BLOCKING, highest),
          "cuStreamCreateWithPriority");
    return stream;
  }

  void free_stream(StreamHandle stream) override {
    check(cuStreamDestroy_(static_cast<CUstream>(stream)), "cuStreamDestroy");
  }

  EventHandle make_event() override {
    CUevent event = nullptr;
    check(cuEventCreate_(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    return event;
  }

  void free_event(EventHandle event) override {
    check(cuEventDestroy_(static_cast<CUevent>(event)), "cuEventDestroy");
  }

  void record(EventHandle event, StreamHandle stream) override {
    check(cuEventRecord_(static_cast<CUevent>(event), static_cast<CUstream>(stream)),
          "cuEventRecord");
  }

  bool has_happened(EventHandle event) override {
    const CUresult result = cuEventQuery_(static_cast<CUevent>(event));
    if (result == CUDA_ERROR_NOT_READY) {
      return false;
    }
    check(result, "cuEventQuery");
    return true;
  }

  void wait(StreamHandle stream, EventHandle event) override {
    check(cuStreamWaitEvent_(static_cast<CUstream>(stream), static_cast<CUevent>(event),
                             CU_EVENT_WAIT_DEFAULT),
          "cuStreamWaitEvent");
  }

  EventHandle make_shared_event() override {
    CUevent event = nullptr;
    check(cuEventCreate_(&event, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS), "cuEventCreate");
    return event;
  }

  IpcHandle export_event(EventHandle event) override {
    CUipcEventHandle handle{};
    check(cuIpcGetEventHandle_(&handle, static_cast<CUevent>(event)), "cuIpcGetEventHandle");
    return bytes_of(handle);
  }

  EventHandle open_event(const IpcHandle& handle) override {
    CUevent event = nullptr;
    check(cuIpcOpenEventHandle_(&event, handle_of<CUipcEventHandle>(handle)),
          "cuIpcOpenEventHandle");
    return event;
  }

  IpcHandle export_memory(void* memory) override {
    CUipcMemHandle handle{};
    check(cuIpcGetMemHandle_(&handle, address_of(memory)), "cuIpcGetMemHandle");
    return bytes_of(handle);
  }

  void* open_memory(const IpcHandle& handle) override {
    CUdeviceptr memory = 0;
    check(cuIpcOpenMemHandle_(&memory, handle_of<CUipcMemHandle>(handle),
                              CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
          "cuIpcOpenMemHandle");
    return reinterpret_cast<void*>(memory);
  }

  void close_memory(void* memory) override {
    check(cuIpcCloseMemHandle_(address_of(memory)), "cuIpcCloseMemHandle");
  }

  void reach(int device) override {
    const CUresult result = cuCtxEnablePeerAccess_(primary_context(device), 0);
    if (result != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) {
      check(result, fmt::format("cuCtxEnablePeerAccess of device {}", device));
    }
  }

  std::uint64_t process() override { return process_; }

  CaptureInfo capture_of(StreamHandle stream) override {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    cuuint64_t id = 0;
    check(cuStreamGetCaptureInfo_(static_cast<CUstream>(stream), &status, &id),
          "cuStreamGetCaptureInfo");
    switch (status) {
      case CU_STREAM_CAPTURE_STATUS_NONE:
        return {};
      case CU_STREAM_CAPTURE_STATUS_ACTIVE:
        return {.status = CaptureStatus::Active, .id = id};
      default:
        return {.status = CaptureStatus::Invalidated, .id = id};
    }
  }

  CaptureMode exchange_capture_mode(CaptureMode mode) override {
    static_assert(CU_STREAM_CAPTURE_MODE_GLOBAL == static_cast<int>(CaptureMode::Global) &&
                  CU_STREAM_CAPTURE_MODE_THREAD_LOCAL ==
                      static_cast<int>(CaptureMode::ThreadLocal) &&
                  CU_STREAM_CAPTURE_MODE_RELAXED == static_cast<int>(CaptureMode::Relaxed));
    auto exchanged = static_cast<CUstreamCaptureMode>(mode);
    check(cuThreadExchangeStreamCaptureMode_(&exchanged), "cuThreadExchangeStreamCaptureMode");
    return static_cast<CaptureMode>(exchanged);
  }

  void* allocate(std::size_t bytes) override {
    CUdeviceptr memory = 0;
    check(cuMemAlloc_(&memory, bytes), fmt::format("cuMemAlloc of {} bytes", bytes));
    return reinterpret_cast<void*>(memory);
  }

  void free(void* memory) override { check(cuMemFree_(address_of(memory)), "cuMemFree"); }

  void* allocate_host(std::size_t bytes) override {
    void* memory = nullptr;
    check(cuMemHostAlloc_(&memory, bytes, CU_MEMHOSTALLOC_PORTABLE),
          fmt::format("cuMemHostAlloc of {} bytes", bytes));
    return memory;
  }

  void free_host(void* memory) override { check(cuMemFreeHost_(memory), "cuMemFreeHost"); }

  void copy(void* to, const void* from, std::size_t bytes, StreamHandle stream) override {
    check(cuMemcpyAsync_(address_of(to), address_of(from), bytes, static_cast<CUstream>(stream)),
          "cuMemcpyAsync");
  }

  void zero(void* memory, std::size_t bytes, StreamHandle stream) override {
    check(cuMemsetD8Async_(address_of(memory), 0, bytes, static_cast<CUstream>(stream)),
          "cuMemsetD8Async");
  }

  FunctionHandle load(std::span<const std::byte> image, const char* name) override {
    CUcontext context = nullptr;
    check(cuCtxGetCurrent_(&context), "cuCtxGetCurrent");
    const std::scoped_lock lock(modules_mutex_);
    CUmodule& module = modules_[{context, image.data()}];
    if (module == nullptr) {
      check(cuModuleLoadData_(&module, image.data()), "cuModuleLoadData");
    }
    CUfunction function = nullptr;
    check(cuModuleGetFunction_(&function, module, name),
          fmt::format("cuModuleGetFunction of {}", name));
    return function;
  }

  void launch(FunctionHandle function, Grid grid, std::span<const std::byte> argument,
              StreamHandle stream) override {
    void* arguments[] = {const_cast<std::byte*>(argument.data())};  // CUDA copies, and has no const
    check(cuLaunchKernel_(static_cast<CUfunction>(function), grid.blocks, 1, 1, grid.threads, 1, 1,
                          0, static_cast<CUstream>(stream), arguments, nullptr),
          "cuLaunchKernel");
  }

 private:
  template <typename Handle>
  static IpcHandle bytes_of(const Handle& handle) {
    IpcHandle bytes{};
    static_assert(sizeof handle == sizeof bytes);
    std::memcpy(bytes.data(), &handle, sizeof handle);
    return bytes;
  }

  template <typename Handle>
  static Handle handle_of(const IpcHandle& bytes) {
    Handle handle{};
    static_assert(sizeof handle == sizeof bytes);
    std::memcpy(&handle, bytes.data(), sizeof handle);
    return handle;
  }

  /// A random name: process numbers occur twice in containers that share a host's memory.
  static std::uint64_t name_process() {
    static const std::uint64_t name = [] {
      std::random_device random;
      return (std::uint64_t{random()} << 32U) | random();
    }();
    return name;
  }

  void check(CUresult result, std::string_view call) const {
    if (result == CUDA_SUCCESS) {
      return;
    }
    const char* name = nullptr;
    const char* text = nullptr;
    (void)cuGetErrorName_(result, &name);
    (void)cuGetErrorString_(result, &text);
    throw CudaError(static_cast<int>(result),
                    fmt::format("{}: {} ({})", call, text == nullptr ? "unknown error" : text,
                                name == nullptr ? fmt::to_string(static_cast<int>(result)) : name));
  }

  /// The context that torch uses too, kept as long as the process: other libraries hold it as well.
  CUcontext primary_context(int device) {
    const std::scoped_lock lock(mutex_);
    CUcontext& context = contexts_[device];
    if (context == nullptr) {
      CUdevice handle = 0;
      check(cuDeviceGet_(&handle, device), fmt::format("cuDeviceGet of device {}", device));
      check(cuDevicePrimaryCtxRetain_(&context, handle), "cuDevicePrimaryCtxRetain");
    }
    return context;
  }

  BF_DRIVER_FUNCTION(cuInit);
  BF_DRIVER_FUNCTION(cuGetErrorName);
  BF_DRIVER_FUNCTION(cuGetErrorString);
  BF_DRIVER_FUNCTION(cuDeviceGet);
  BF_DRIVER_FUNCTION(cuDeviceGetCount);
  BF_DRIVER_FUNCTION(cuDevicePrimaryCtxRetain);
  BF_DRIVER_FUNCTION(cuCtxPushCurrent);
  BF_DRIVER_FUNCTION(cuCtxPopCurrent);
  BF_DRIVER_FUNCTION(cuCtxGetCurrent);
  BF_DRIVER_FUNCTION(cuCtxGetStreamPriorityRange);
  BF_DRIVER_FUNCTION(cuStreamCreateWithPriority);
  BF_DRIVER_FUNCTION(cuStreamDestroy);
  BF_DRIVER_FUNCTION(cuStreamWaitEvent);
  CUresult(CUDAAPI* cuStreamGetCaptureInfo_)(CUstream, CUstreamCaptureStatus*,
                                             cuuint64_t*) = nullptr;
  BF_DRIVER_FUNCTION(cuThreadExchangeStreamCaptureMode);
  BF_DRIVER_FUNCTION(cuEventCreate);
  BF_DRIVER_FUNCTION(cuEventDestroy);
  BF_DRIVER_FUNCTION(cuEventRecord);
  BF_DRIVER_FUNCTION(cuEventQuery);
  BF_DRIVER_FUNCTION(cuIpcGetEventHandle);
  BF_DRIVER_FUNCTION(cuIpcOpenEventHandle);
  BF_DRIVER_FUNCTION(cuIpcGetMemHandle);
  BF_DRIVER_FUNCTION(cuIpcOpenMemHandle);
  BF_DRIVER_FUNCTION(cuIpcCloseMemHandle);
  BF_DRIVER_FUNCTION(cuCtxEnablePeerAccess);
  BF_DRIVER_FUNCTION(cuMemAlloc);
  BF_DRIVER_FUNCTION(cuMemFree);
  BF_DRIVER_FUNCTION(cuMemHostAlloc);
  BF_DRIVER_FUNCTION(cuMemFreeHost);
  BF_DRIVER_FUNCTION(cuMemcpyAsync);
  BF_DRIVER_FUNCTION(cuMemsetD8Async);
  BF_DRIVER_FUNCTION(cuModuleLoadData);
  BF_DRIVER_FUNCTION(cuModuleGetFunction);
  BF_DRIVER_FUNCTION(cuLaunchKernel);

  const std::uint64_t process_ = name_process();
  std::mutex mutex_;
  std::map<int, CUcontext> contexts_;
  /// A mutex of its own, since loading may take seconds.
  std::mutex modules_mutex_;
  /// The loaded modules, by context and image.
  std::map<std::pair<CUcontext, const void*>, CUmodule> modules_;
};

}  // namespace

// Keeps drivers to the process's end: modules are loaded and devices' contexts taken once, whatever
// contexts of this library come and go.
std::shared_ptr<CudaApi> load_cuda(const std::string& library) {
  static std::mutex mutex;
  static std::map<std::string, std::shared_ptr<Driver>>& drivers =
      *new std::map<std::string, std::shared_ptr<Driver>>();  // used by threads until the very end
  const std::scoped_lock lock(mutex);
  std::shared_ptr<Driver>& driver = drivers[library];
  if (!driver) {
    driver = std::make_shared<Driver>(SharedObject(library));
  }
  return driver;
}

}  // namespace bluefog::gpu
