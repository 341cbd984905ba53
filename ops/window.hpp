#pragma once

#include <array>
#include <boost/container/small_vector.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bluefog_cpp/buffer_view.hpp"
#include "bluefog_cpp/context.hpp"
#include "bluefog_cpp/weighted_rank.hpp"
#include "bluefog_cpp/work.hpp"
#include "topology/neighbor_plan.hpp"

namespace bluefog::ops {

class WindowCall;
class WindowCore;

/// The first contents of a window's buffers.
enum class WindowFill : std::uint8_t {
  OwnValue,  ///< this rank's own value
  Zeros,     ///< 0 in every element
};

/// Whether the scalar of push-sum goes along with the tensor.
enum class AssociatedWeight : std::uint8_t {
  Off,  ///< the tensor travels alone
  On,   ///< put, accumulate, get and update treat m_i, n_i(j) as x_i, b_i(j)
};

/// Whether a call holds the mutexes of the ranks that it concerns (of this rank, for an update).
enum class Exclusion : std::uint8_t {
  None,   ///< no mutex; reads and writes of buffers are whole all the same
  Mutex,  ///< as if under `Window::lock`
};

/// The fate of a buffer that has been read.
enum class BufferReset : std::uint8_t {
  Keep,  ///< it can be read again
  Zero,  ///< it becomes 0, its associated weight too
};

/// The stream on which the tensor of a window on a device is ordered, for a call that is not given
/// the tensor; default: that of the view the window was created with.
using WindowStream = std::optional<void*>;

/// The choices of `Window::create`.
struct WindowOptions {
  std::string name{};                      ///< for messages; the same on all ranks
  WindowFill fill = WindowFill::OwnValue;  ///< of all buffers
  AssociatedWeight associated_weight = AssociatedWeight::Off;  ///< at first
};

/// The choices of `Window::put` and `Window::accumulate`.
struct WindowPutOptions {
  /// The factor by which the tensor is multiplied afterwards, in place.
  double self_weight = 1.0;
  /// Some of the plan's destinations, each with the weight it is sent with; default: all of them,
  /// with the plan's weights.
  std::optional<std::vector<WeightedRank>> destinations{};
  Exclusion exclusion = Exclusion::None;  ///< concerns the destinations
  /// A number that goes along, such as the round of the sender: `Window::stamp_of`.
  std::int64_t stamp = 0;
  std::shared_ptr<const class Compression> compression{};  ///< puts C(x), of `compression_named`
};

/// The choices of `Window::get`.
struct WindowGetOptions {
  /// Some of the plan's sources, each with the weight its value is multiplied by; default: all of
  /// them, weight 1.
  std::optional<std::vector<WeightedRank>> sources{};
  Exclusion exclusion = Exclusion::None;  ///< concerns the sources
  WindowStream stream{};                  ///< of the window's tensor
};

/// The choices of `Window::update`.
struct WindowUpdateOptions {
  /// The weights of one sum.
  struct Weights {
    double self_weight = 1.0;  ///< w_self, the factor of the tensor
    /// Some of the plan's sources; the other buffers are left alone.
    std::vector<WeightedRank> sources{};
  };
  /// Default: the plan's.
  std::optional<Weights> weights{};
  BufferReset reset = BufferReset::Keep;  ///< of the buffers that the sum reads
  Exclusion exclusion = Exclusion::None;  ///< concerns this rank
  /// The place of the result; default: the window's tensor. Same count, dtype and device.
  std::optional<BufferView> output{};
  WindowStream stream{};  ///< of the tensor and the output
};

/// The mutexes of some ranks of a window, held as long as this lives. It has to go in the thread
/// that took them: elsewhere they stay taken until that thread ends, which is logged as an error.
class WindowLock {
 public:
  /// For `Window::lock`. @param ranks rising.
  WindowLock(std::shared_ptr<WindowCore> core, std::span<const int> ranks);
  /// Takes over what `other` holds, which then holds nothing.
  WindowLock(WindowLock&& other) noexcept;
  /// Gives back what this holds, and takes over what `other` holds.
  WindowLock& operator=(WindowLock&& other) noexcept;
  /// Gives the mutexes back.
  ~WindowLock();

 private:
  struct Taken {
    int rank = 0;
    /// The number that the release names where the memory of that rank is not shared.
    std::uint64_t ticket = 0;
  };
  void begin(WindowCall call);
  void take(std::span<const int> ranks);
  void release() noexcept;

  /// Enough for a `WindowCall`, whose type is private; on the heap it would cost each step of
  /// window optimizers an allocation.
  static constexpr std::size_t kCallBytes = 96;

  std::shared_ptr<WindowCore> core_;
  alignas(
      std::max_align_t) std::array<std::byte, kCallBytes> room_;  // no braces: they would clear it
  /// In `room_`; null while no call lasts.
  WindowCall* call_ = nullptr;
  boost::container::small_vector<Taken, 4> taken_;
};

/// One-sided averaging: each rank keeps a buffer for each of its sources, which that source writes,
/// or this rank fetches, while the other side computes and calls nothing.
///
/// With x_i a rank's tensor, b_i(j) the buffer that rank i keeps for its source j, and m_i, n_i(j)
/// the associated weights (m_i is 1 and n_i(j) 0 at first):
///
///     put         b_r(i) ← d(r) · x             for r among the destinations
///     accumulate  b_r(i) ← b_r(i) + d(r) · x    for r among the destinations
///                 and then, in both, x ← self_weight · x
///     get         b_i(j) ← w(j) · x_j           for j among the sources
///     update      x_i ← w_self · x_i + Σ_j w(j) · b_i(j)
///
/// and the same for the associated weights where they are On, with m_i, n_i(j) for x_i, b_i(j). The
/// sum of `update` is formed as by `neighbor_allreduce`, with equal values exact where its weights
/// sum to 1.
///
/// Every store into a buffer and every read of it is whole: an update sees a put or an accumulate
/// entirely or not at all, and none is lost. `get` reads the other rank's tensor while that rank
/// may be changing it; `Exclusion::Mutex` on both sides keeps them apart.
///
/// Ranks of one host write each other's buffers directly. Between hosts the owner's server thread
/// writes, within about `BLUEFOG_POLL_PERIOD`; a call returns when the owner has the value.
///
/// A window of a tensor on a device keeps mutexes and weights on the host as others do. Its buffers
/// are in device memory where all ranks are on one host and reach each other's device; a call then
/// returns when the device has done its part. Otherwise they are on the host: calls work on copies
/// of the tensor there, and return when their results are on their way to the device (docs/gpu.md,
/// Windows). A call comes after the work that is on the tensor's stream when it is made, and later
/// work on that stream comes after the call. `get` of other ranks finds the value that the tensor
/// had in the last call that this rank made with it: create, put, accumulate, get, update, fill
/// with the own value, or publish. One rank's tensor may be on the CPU and another's on a device.
///
/// Thread-safe; calls that are not waited for run in order, on a thread of their own. Blocking
/// calls allocate nothing for up to 8 neighbours inside a host. Keeps its context alive.
class Window {
 public:
  /// Collective. @param tensor this rank's value: `count` elements of float16, bfloat16, float32 or
  ///   float64 on the CPU or on the context's device, the same count and dtype on all ranks. Must
  ///   stay where it is while the window lives (or give its `owner`): a `DistributedOptimizer`
  ///   moves the parameters that it wraps, so that windows over those are made after it.
  /// @param plan this rank's part of a graph; who sends to a rank must be one of its sources.
  /// Memory: one copy of the tensor per source, shared between the ranks of the host; for a tensor
  ///   on a device one more, and page-locked memory for one while a call lasts.
  /// @throws InvalidArgument for a wrong argument of this rank, and PeerFailure on the others;
  ///   MismatchError on all ranks where names, counts, dtypes or plans do not fit together.
  static std::shared_ptr<Window> create(Context& context, BufferView tensor,
                                        const NeighborPlan& plan,
                                        const WindowOptions& options = {});
  /// Local: gives the window up without waiting; calls of other ranks to it get WindowGoneError.
  ~Window();
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  /// Collective. Waits for the calls of all ranks, and gives the memory back; without this, that
  /// happens only when the context ends. Mutexes that this thread holds are released.
  /// @throws StateError where another thread of this rank holds a mutex of the window, and
  ///   PeerFailure on the other ranks: all keep the window. StateError where it has been freed.
  void free();

  /// Writes `tensor` to the buffers that the destinations keep for this rank, then multiplies it by
  /// the self weight.
  /// @param tensor the window's, or another like it on the same device.
  /// Cost: one pass over the tensor and one message per destination, with a compression of its length.
  /// The calling thread must hold none of the mutexes that a call with `Exclusion::Mutex` takes,
  /// also where it does not wait for the call.
  /// @throws InvalidArgument for a tensor of another kind, a rank that is no destination, a code or
  ///   values that it cannot take (UnsupportedError for a window of none); StateError after `free`
  ///   here, and where this thread holds one of the mutexes, WindowGoneError (a StateError) where a
  ///   rank has freed or destroyed its own; PeerFailure, TimeoutError.
  void put(BufferView tensor, const WindowPutOptions& options = {});
  /// Adds `tensor` to those buffers in place of writing it there; else as `put`.
  void accumulate(BufferView tensor, const WindowPutOptions& options = {});
  /// Fills this rank's buffers with the sources' tensors as they are, which the sources may be
  /// changing meanwhile.
  /// Cost: one pass over the tensor for each source; between hosts a short message there and the
  /// tensor back.
  /// @throws as `put`, with sources for destinations.
  void get(const WindowGetOptions& options = {});
  /// @name Forms that do not wait
  /// @{

  /// They check their arguments and return; the calls run in order, on a thread of their own. The
  /// caller leaves the tensor alone until the work is complete. `Work::wait` throws the errors that
  /// come after the checks.
  [[nodiscard]] Work put_nonblocking(BufferView tensor, const WindowPutOptions& options = {});
  [[nodiscard]] Work accumulate_nonblocking(BufferView tensor,
                                            const WindowPutOptions& options = {});
  [[nodiscard]] Work get_nonblocking(const WindowGetOptions& options = {});

  /// @}

  /// Combines the tensor with the buffers. Nothing is sent. Versions of the buffers used become 0.
  /// An output leaves the tensor as it is; m_i, of which there is one, becomes the output's.
  /// Cost: one pass over the tensor and each buffer.
  /// @throws InvalidArgument for a rank that is no source, a weight that is not finite, an output of
  ///   another kind or one that overlaps the tensor in part; StateError after `free`.
  void update(const WindowUpdateOptions& options = {});
  /// x_i ← x_i + Σ_j b_i(j), and the buffers become 0: nothing that was accumulated is lost or
  /// counted twice.
  void update_then_collect(Exclusion exclusion = Exclusion::Mutex, WindowStream stream = {});

  /// Sets this rank's buffers as when the window was created with `fill`, from the tensor as it is
  /// now: what came in and was not read is dropped, its associated weight too.
  void fill(WindowFill fill, WindowStream stream = {});

  /// Makes `get` of other ranks find this rank's tensor as it is now on its stream. Does nothing on
  /// the CPU, where `get` always finds the tensor as it is.
  void publish(WindowStream stream = {});

  /// The number of writes to each source's buffer since it was last read, by rising source.
  [[nodiscard]] std::vector<std::pair<int, std::int64_t>> versions() const;
  /// The stamp of the last put or accumulate into a source's buffer; 0 at first, after a `get`, and
  /// where `fill` has dropped what came in.
  /// @throws InvalidArgument for a rank that is no source; StateError after `free`.
  [[nodiscard]] std::int64_t stamp_of(int source) const;
  /// Sets the stamp of what this rank has put last into its destinations' buffers, whose values stay:
  /// a `wait_for` of this rank may so be ended without a put. Destinations that are gone are passed
  /// over. Cost: a short message to each destination on another host, which nobody answers.
  /// @throws StateError after `free`.
  void announce(std::int64_t stamp);
  /// Waits until the buffer of each of `sources` has a stamp of at least `stamp`.
  /// @param sources some of the plan's; their weights have no part.
  /// @param longest the time to wait at most, at least 0; default: `BLUEFOG_TIMEOUT`, whose end is
  ///   an error.
  /// @return whether all have it; false when `longest` is over.
  /// Cost: nothing is sent inside a host. The wait looks at shared memory every 20 µs at first and
  /// every millisecond later, and asks a source on another host five times a second whether it has
  /// the window still.
  /// @throws InvalidArgument for a rank that is no source, or a negative time; TimeoutError, which
  ///   names rank and stamp; of a source that has not come, WindowGoneError and PeerFailure;
  ///   StateError after `free`.
  bool wait_for(const std::vector<WeightedRank>& sources, std::int64_t stamp,
                std::optional<std::chrono::nanoseconds> longest = {});
  /// m_i, which is 1 at first. @throws StateError after `free`.
  [[nodiscard]] double associated_weight() const;
  /// m_i ← `weight`: to go on from a saved value. @throws InvalidArgument unless it is finite.
  void set_associated_weight(double weight);
  /// Whether the calls that follow count the associated weight.
  void set_associated_weight(AssociatedWeight state) noexcept;

  /// Takes the mutexes of `ranks` (destinations, sources, this rank), in rising order. Calls of
  /// other ranks with `Exclusion::Mutex` that concern these ranks wait meanwhile.
  /// @throws StateError where this thread holds one of them already; TimeoutError, which names the
  ///   holder; PeerFailure.
  [[nodiscard]] WindowLock lock(std::vector<int> ranks);
  /// `lock` of this rank alone: other ranks' calls with `Exclusion::Mutex` leave its buffers alone.
  [[nodiscard]] WindowLock lock_self();

  /// The name of the options.
  [[nodiscard]] const std::string& name() const noexcept;
  /// This rank's value, as it was given to `create`.
  [[nodiscard]] const BufferView& tensor() const noexcept;
  /// This rank's part of the graph, as it was given to `create`.
  [[nodiscard]] const NeighborPlan& plan() const noexcept;

 private:
  explicit Window(std::shared_ptr<WindowCore> core) : core_(std::move(core)) {}
  std::shared_ptr<WindowCore> core_;
};

}  // namespace bluefog::ops
