#pragma once

#include <functional>
#include <string>

#include "bluefog_cpp/device/cuda/cuda_api.hpp"
#include "bluefog_cpp/device/cuda/shared_object.hpp"
#include "bluefog_cpp/error.hpp"

namespace bluefog {

/// A CUDA graph, as a user makes one with CUDA's driver; the library itself makes none. The caller
/// has entered the device.
class DriverGraph {
 public:
  /// Captures the work that `body` puts on the stream. Other threads may take memory meanwhile,
  /// this one may not.
  DriverGraph(gpu::StreamHandle stream, const std::function<void()>& body)
      : library_("libcuda.so.1") {
    library_.bind(begin_capture_, "cuStreamBeginCapture_v2");
    library_.bind(end_capture_, "cuStreamEndCapture");
    library_.bind(instantiate_, "cuGraphInstantiateWithFlags");
    library_.bind(launch_, "cuGraphLaunch");
    library_.bind(destroy_, "cuGraphDestroy");
    library_.bind(destroy_exec_, "cuGraphExecDestroy");
    check(begin_capture_(stream, static_cast<int>(gpu::CaptureMode::ThreadLocal)),
          "cuStreamBeginCapture");
    void* graph = nullptr;
    try {
      body();
    } catch (...) {
      if (end_capture_(stream, &graph) == 0) {
        destroy_(graph);
      }
      throw;
    }
    check(end_capture_(stream, &graph), "cuStreamEndCapture");
    const int code = instantiate_(&exec_, graph, 0);
    destroy_(graph);
    check(code, "cuGraphInstantiateWithFlags");
  }
  DriverGraph(const DriverGraph&) = delete;
  DriverGraph& operator=(const DriverGraph&) = delete;
  ~DriverGraph() { destroy_exec_(exec_); }

  void launch(gpu::StreamHandle stream) { check(launch_(exec_, stream), "cuGraphLaunch"); }

 private:
  static void check(int code, const std::string& call) {
    if (code != 0) {
      throw CudaError(code, call + ": CUDA's error " + std::to_string(code));
    }
  }

  gpu::SharedObject library_;
  int (*begin_capture_)(void*, int) = nullptr;
  int (*end_capture_)(void*, void**) = nullptr;
  int (*instantiate_)(void**, void*, unsigned long long) = nullptr;
  int (*launch_)(void*, void*) = nullptr;
  int (*destroy_)(void*) = nullptr;
  int (*destroy_exec_)(void*) = nullptr;
  void* exec_ = nullptr;
};

}  // namespace bluefog
