#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bluefog_cpp/device/cuda/cuda_api.hpp"
#include "tests/support/gpu/memory_book.hpp"

namespace bluefog::testing {

/// The operations that were put on streams during a capture, in order. Each stream is a branch; the
/// first one is that on which the capture began.
struct CapturedGraph {
  struct Step {
    enum class Kind : std::uint8_t { Run, Record, Wait };

    Kind kind = Kind::Run;
    int branch = 0;
    /// The name of the operation, for `Run`.
    std::string what{};
    std::vector<Access> accesses{};
    std::function<void()> task{};
    /// The number of the mark, for `Record` and `Wait`.
    std::size_t mark = 0;
  };

  std::vector<Step> steps;
  int branches = 0;
  std::size_t marks = 0;
  /// Objects that end with the graph and its replays.
  std::shared_ptr<std::vector<std::shared_ptr<const void>>> kept =
      std::make_shared<std::vector<std::shared_ptr<const void>>>();
  /// The stream of each branch, from the first replay on.
  std::vector<gpu::StreamHandle> streams;

  [[nodiscard]] int count_of(const std::string& what) const;
};

/// A capture under way. Under the stand-in's mutex.
class CaptureUnderWay {
 public:
  CaptureUnderWay(std::uint64_t id, gpu::CaptureMode mode, gpu::StreamHandle origin);

  [[nodiscard]] std::uint64_t id() const noexcept { return id_; }
  [[nodiscard]] gpu::CaptureMode mode() const noexcept { return mode_; }
  [[nodiscard]] gpu::StreamHandle origin() const noexcept { return origin_; }
  [[nodiscard]] bool is_of_this_thread() const { return thread_ == std::this_thread::get_id(); }
  [[nodiscard]] bool is_invalid() const noexcept { return is_invalid_; }
  void invalidate() noexcept { is_invalid_ = true; }
  [[nodiscard]] bool is_over() const noexcept { return is_over_; }
  void end() noexcept { is_over_ = true; }
  [[nodiscard]] CapturedGraph& graph() noexcept { return *graph_; }
  /// The graph, once the capture is over. Events recorded in it still refer to this object.
  [[nodiscard]] std::shared_ptr<CapturedGraph> take_graph() noexcept { return std::move(graph_); }

  void run(gpu::StreamHandle stream, const std::string& what, const std::vector<Access>& accesses,
           std::function<void()> task);
  /// @return the mark.
  [[nodiscard]] std::size_t record(gpu::StreamHandle stream);
  void wait(gpu::StreamHandle stream, std::size_t mark);
  /// Whether the origin comes after everything on the other streams.
  [[nodiscard]] bool is_joined() const;

 private:
  [[nodiscard]] int branch_of(gpu::StreamHandle stream);

  std::uint64_t id_;
  gpu::CaptureMode mode_;
  gpu::StreamHandle origin_;
  std::thread::id thread_ = std::this_thread::get_id();
  bool is_invalid_ = false;
  bool is_over_ = false;
  std::shared_ptr<CapturedGraph> graph_ = std::make_shared<CapturedGraph>();
  std::map<const void*, int> branches_;
  /// Operations before the next one of each branch: its own runs and waits, and other branches'.
  std::vector<Clock> clocks_;
  std::vector<Clock> marks_;
};

}  // namespace bluefog::testing
