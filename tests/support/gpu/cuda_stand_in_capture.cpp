// Captures of streams, and replays of the captured operations.
#include <fmt/format.h>

#include <utility>

#include "bluefog_cpp/error.hpp"
#include "tests/support/gpu/cuda_stand_in.hpp"

namespace bluefog::testing {
namespace {

thread_local gpu::CaptureMode thread_mode = gpu::CaptureMode::Global;

// CUDA_ERROR_STREAM_CAPTURE_…
constexpr int kUnsupported = 900;
constexpr int kInvalidated = 901;
constexpr int kMerge = 902;
constexpr int kUnmatched = 903;
constexpr int kUnjoined = 904;
constexpr int kIsolation = 905;
constexpr int kImplicit = 906;
constexpr int kWrongThread = 908;

}  // namespace

void CudaStandIn::spoil(CaptureUnderWay* capture, int code, const std::string& mistake) {
  if (capture != nullptr) {
    capture->invalidate();
  }
  book_.report(mistake);
  throw CudaError(code, mistake);
}

CaptureUnderWay* CudaStandIn::capture_on(gpu::StreamHandle handle) {
  const auto found = captures_.find(handle);
  if (found == captures_.end()) {
    return nullptr;
  }
  if (found->second->is_invalid()) {
    throw CudaError(kInvalidated, "operation failed due to a previous error during capture");
  }
  return found->second.get();
}

gpu::CaptureInfo CudaStandIn::capture_of(gpu::StreamHandle stream) {
  check_entered("cuStreamGetCaptureInfo");
  const std::scoped_lock lock(mutex_);
  (void)stream_of(stream);
  const auto found = captures_.find(stream);
  if (found == captures_.end()) {
    return {};
  }
  return {.status = found->second->is_invalid() ? gpu::CaptureStatus::Invalidated
                                                : gpu::CaptureStatus::Active,
          .id = found->second->id()};
}

gpu::CaptureMode CudaStandIn::exchange_capture_mode(gpu::CaptureMode mode) {
  return std::exchange(thread_mode, mode);
}

void CudaStandIn::check_capture_mode(const std::string& call) {
  if (thread_mode == gpu::CaptureMode::Relaxed) {
    return;
  }
  const std::scoped_lock lock(mutex_);
  for (const auto& [stream, capture] : captures_) {
    const bool is_prohibited = capture->is_of_this_thread()
                                   ? capture->mode() != gpu::CaptureMode::Relaxed
                                   : capture->mode() == gpu::CaptureMode::Global &&
                                         thread_mode == gpu::CaptureMode::Global;
    if (is_prohibited && !capture->is_invalid()) {
      spoil(capture.get(), kUnsupported, call + " while a stream captures");
    }
  }
}

bool CudaStandIn::capture_wait(gpu::StreamHandle handle, const Recorded& recorded) {
  CaptureUnderWay* const own = capture_on(handle);
  if (recorded.capture) {
    if (recorded.capture->is_over()) {
      spoil(own, kIsolation, "cuStreamWaitEvent for an event of a capture that is over");
    }
    if (own != nullptr && own != recorded.capture.get()) {
      recorded.capture->invalidate();
      spoil(own, kMerge, "cuStreamWaitEvent merges two captures");
    }
    if (handle == nullptr) {
      spoil(recorded.capture.get(), kImplicit, "the default stream waits for a captured event");
    }
    captures_[handle] = recorded.capture;
    recorded.capture->wait(handle, recorded.mark);
    return true;
  }
  if (own != nullptr && recorded.completion) {
    spoil(own, kIsolation, "cuStreamWaitEvent in a capture for an event from outside of it");
  }
  return own != nullptr;
}

void CudaStandIn::begin_capture(gpu::StreamHandle stream, gpu::CaptureMode mode) {
  check_entered("cuStreamBeginCapture");
  const std::scoped_lock lock(mutex_);
  (void)stream_of(stream);
  if (stream == nullptr || captures_.contains(stream)) {
    throw CudaError(kUnsupported, "cuStreamBeginCapture on the default stream, or twice");
  }
  captures_[stream] = std::make_shared<CaptureUnderWay>(++captures_begun_, mode, stream);
}

std::shared_ptr<CapturedGraph> CudaStandIn::end_capture(gpu::StreamHandle stream) {
  check_entered("cuStreamEndCapture");
  const std::scoped_lock lock(mutex_);
  const auto found = captures_.find(stream);
  if (found == captures_.end() || found->second->origin() != stream) {
    throw CudaError(kUnmatched, "cuStreamEndCapture on a stream that began none");
  }
  const auto capture = found->second;
  std::erase_if(captures_, [&](const auto& entry) { return entry.second == capture; });
  capture->end();
  const bool is_joined = capture->is_joined();
  auto graph = capture->take_graph();
  if (capture->mode() != gpu::CaptureMode::Relaxed && !capture->is_of_this_thread()) {
    spoil(nullptr, kWrongThread, "cuStreamEndCapture by another thread");
  }
  if (capture->is_invalid()) {
    throw CudaError(kInvalidated, "cuStreamEndCapture: the capture was spoilt");
  }
  if (!is_joined) {
    spoil(nullptr, kUnjoined, "cuStreamEndCapture while a stream is not joined");
  }
  return graph;
}

void CudaStandIn::keep_in_graph(gpu::StreamHandle stream, std::shared_ptr<const void> object) {
  const std::scoped_lock lock(mutex_);
  if (CaptureUnderWay* const capture = capture_on(stream)) {
    capture->graph().kept->push_back(std::move(object));
  }
}

void CudaStandIn::replay(const std::shared_ptr<CapturedGraph>& graph, gpu::StreamHandle stream) {
  check_entered("cuGraphLaunch");
  while (static_cast<int>(graph->streams.size()) < graph->branches) {
    graph->streams.push_back(make_stream());
  }
  const auto follow = [this](gpu::StreamHandle later, gpu::StreamHandle earlier) {
    const gpu::EventHandle event = make_event();
    record(event, earlier);
    wait(later, event);
    free_event(event);
  };
  follow(graph->streams.front(), stream);
  std::vector<gpu::EventHandle> marks(graph->marks, nullptr);
  for (const CapturedGraph::Step& step : graph->steps) {
    const gpu::StreamHandle branch = graph->streams[static_cast<std::size_t>(step.branch)];
    switch (step.kind) {
      case CapturedGraph::Step::Kind::Run:
        enqueue(branch, step.what, step.accesses,
                [task = step.task, kept = graph->kept] { task(); });
        break;
      case CapturedGraph::Step::Kind::Record:
        marks[step.mark] = make_event();
        record(marks[step.mark], branch);
        break;
      case CapturedGraph::Step::Kind::Wait:
        wait(branch, marks[step.mark]);
        break;
    }
  }
  follow(stream, graph->streams.front());
  for (const gpu::EventHandle mark : marks) {
    free_event(mark);
  }
}

}  // namespace bluefog::testing
