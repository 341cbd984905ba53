// CUDA's driver API behind the table.
#include <cuda.h>
#include <fmt/format.h>

#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bluefog_cpp/base/error.hpp"
#include "bluefog_cpp/transport/cuda/cuda_api.hpp"
#include "bluefog_cpp/transport/cuda/shared_object.hpp"

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
    BF_BIND(cuEventCreate);
    BF_BIND(cuEventDestroy);
    BF_BIND(cuEventRecord);
    BF_BIND(cuEventQuery);
    BF_BIND(cuMemAlloc);
    BF_BIND(cuMemFree);
    BF_BIND(cuMemHostAlloc);
    BF_BIND(cuMemFreeHost);
    BF_BIND(cuMemcpyAsync);
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

  FunctionHandle load(std::span<const std::byte> image, const char* name) override {
    CUcontext context = nullptr;
    check(cuCtxGetCurrent_(&context), "cuCtxGetCurrent");
    const std::scoped_lock lock(mutex_);
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

  /// The one that torch uses too. Kept as long as the process: other libraries hold it as well.
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
  BF_DRIVER_FUNCTION(cuEventCreate);
  BF_DRIVER_FUNCTION(cuEventDestroy);
  BF_DRIVER_FUNCTION(cuEventRecord);
  BF_DRIVER_FUNCTION(cuEventQuery);
  BF_DRIVER_FUNCTION(cuMemAlloc);
  BF_DRIVER_FUNCTION(cuMemFree);
  BF_DRIVER_FUNCTION(cuMemHostAlloc);
  BF_DRIVER_FUNCTION(cuMemFreeHost);
  BF_DRIVER_FUNCTION(cuMemcpyAsync);
  BF_DRIVER_FUNCTION(cuModuleLoadData);
  BF_DRIVER_FUNCTION(cuModuleGetFunction);
  BF_DRIVER_FUNCTION(cuLaunchKernel);

  std::mutex mutex_;
  std::map<int, CUcontext> contexts_;
  /// By context and image.
  std::map<std::pair<CUcontext, const void*>, CUmodule> modules_;
};

}  // namespace

std::shared_ptr<CudaApi> load_cuda(const std::string& library) {
  return std::make_shared<Driver>(SharedObject(library));
}

}  // namespace bluefog::gpu
