#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bluefog_cpp/buffer_view.hpp"
#include "bluefog_cpp/context.hpp"
#include "ops/window.hpp"
#include "topology/neighbor_plan.hpp"
#include "topology/schedule.hpp"

namespace bluefog::optimizers {

/// A window for each bucket, over the ranks that are neighbours in some round of a schedule.
///
/// Tensors may be on a device: calls are then ordered by the stream that is current in this thread,
/// and the host waits for the device in each of them (`ops::Window`).
///
/// Ranks may end at different times: nothing is sent to or fetched from one that has destroyed its
/// windows, with a line in the log. Its last values stay where it put them.
class BucketWindows {
 public:
  /// Collective. @param context outlives this object; so does the memory of `tensors`, one per
  ///   bucket.
  /// @param neighbors rounds beyond the first 1,024 of a period are not looked at: with a longer
  ///   period everybody is everybody's neighbour.
  /// Memory: a copy of the tensors for each rank that this one hears; given back when the context
  /// ends.
  BucketWindows(Context& context, const std::vector<BufferView>& tensors,
                const std::vector<std::string>& names, const Schedule& neighbors,
                const ops::WindowOptions& options);

  /// @throws InvalidArgument if the plan names a rank that is no neighbour, before anything moves.
  void check(const NeighborPlan& plan) const;

  /// Puts tensor b to the plan's destinations, with its send weights and a stamp.
  void put(std::size_t b, const NeighborPlan& plan, std::int64_t stamp = 0);
  /// Adds tensor b to the destinations' buffers. @return the sum of the present ones' weights.
  double accumulate(std::size_t b, const NeighborPlan& plan);
  /// Tensor b becomes `values`. Ranks that fetch see it; on a device, once this rank has made
  /// `publish` or `get`.
  void set(std::size_t b, const BufferView& values);
  void publish(std::size_t b);
  /// Fetches the tensors b of the plan's sources, each whole.
  void get(std::size_t b, const NeighborPlan& plan);
  /// output ← self weight · tensor b + Σ_j w(j) · buffer_j, with the plan's weights and sources.
  void average(std::size_t b, const NeighborPlan& plan, const BufferView& output);
  /// Tensor b and its associated weight become `kept` times themselves plus the sum of all buffers,
  /// which become zero.
  void collect(std::size_t b, double kept);
  /// The stamp of what `rank`, a source, has put last for the last tensor; 0 where it was dropped.
  [[nodiscard]] std::int64_t stamp_of(int rank) const;
  /// The highest of all ranks that are not away.
  [[nodiscard]] std::int64_t latest_stamp() const;
  /// Nobody waits for this rank until its next put.
  void announce_absence();
  /// Waits until `rank` has put the last tensor with at least `stamp`, or has finished.
  /// @param longest as for `ops::Window::wait_for`. @return whether it has.
  [[nodiscard]] bool wait_for(int rank, std::int64_t stamp,
                              std::optional<std::chrono::nanoseconds> longest);
  /// Whether the rank has been found to have finished.
  [[nodiscard]] bool is_gone(int rank) const noexcept {
    return is_gone_[static_cast<std::size_t>(rank)];
  }
  /// Whether values have come in that were not read.
  [[nodiscard]] bool has_news(std::size_t b) const;
  /// Drops the values that came in: buffers start again from tensor b as it is now.
  void fill(std::size_t b, ops::WindowFill fill);

  /// Calls `step(b)`, then `exchange(b)`, for every b. On a device all steps come first, because
  /// the host waits for the device in exchanges.
  template <typename Step, typename Exchange>
  void run(Step&& step, Exchange&& exchange) const {
    const bool steps_first = windows_.front()->tensor().device.kind != DeviceKind::Cpu;
    for (std::size_t b = 0; steps_first && b < windows_.size(); ++b) {
      step(b);
    }
    for (std::size_t b = 0; b < windows_.size(); ++b) {
      if (!steps_first) {
        step(b);
      }
      exchange(b);
    }
  }

  [[nodiscard]] ops::Window& operator[](std::size_t b) noexcept { return *windows_[b]; }
  [[nodiscard]] std::size_t size() const noexcept { return windows_.size(); }

 private:
  /// The stamp of a rank that is away.
  static constexpr std::int64_t kAway = std::numeric_limits<std::int64_t>::max();

  template <typename Call>
  double for_present(const std::vector<WeightedRank>& ranks, std::vector<WeightedRank>& present,
                     Call&& call);
  void note_gone(int rank);
  /// The stream that orders calls on tensor b now.
  [[nodiscard]] ops::WindowStream stream_of(std::size_t b) const;

  Context& context_;
  NeighborPlan neighbors_;
  std::vector<std::shared_ptr<ops::Window>> windows_;
  std::vector<bool> is_gone_;
  // Options are kept for their memory: steps allocate nothing.
  ops::WindowPutOptions put_options_;
  ops::WindowGetOptions get_options_;
  ops::WindowUpdateOptions average_options_;
  ops::WindowUpdateOptions collect_options_;
};

}  // namespace bluefog::optimizers
