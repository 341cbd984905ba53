#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bluefog_cpp/device/nccl/nccl_api.hpp"
#include "tests/support/gpu/cuda_stand_in.hpp"

namespace bluefog::testing {

/// NCCL without a GPU, over the streams of a CudaStandIn: a group is one operation of its stream,
/// which ends when all of its sends and receives have met their other ends. Uses that NCCL leaves
/// undefined are recorded as mistakes: sizes that differ, sends outside of a group, groups that
/// stay open, communicators that are destroyed while in use. Like NCCL's, a communicator ends, or
/// is aborted to the end, only after all CUDA graphs with its groups have ended and all of its
/// ranks end or abort theirs.
class NcclStandIn final : public gpu::NcclApi {
 public:
  explicit NcclStandIn(std::shared_ptr<CudaStandIn> cuda) : cuda_(std::move(cuda)) {}

  int version() override { return 22809; }
  gpu::NcclId make_id() override;
  gpu::CommHandle init(int size, const gpu::NcclId& id, int rank) override;
  void destroy(gpu::CommHandle comm) override;
  void abort(gpu::CommHandle comm) override;
  void revoke(gpu::CommHandle comm) override;
  gpu::CommHandle shrink(gpu::CommHandle comm, std::span<const int> gone) override;
  std::optional<std::string> async_error(gpu::CommHandle comm) override;
  void group_start() override;
  void group_end() override;
  void send(const void* data, std::size_t bytes, int peer, gpu::CommHandle comm,
            gpu::StreamHandle stream) override;
  void receive(void* data, std::size_t bytes, int peer, gpu::CommHandle comm,
               gpu::StreamHandle stream) override;

  /// From now on the communicator of that rank has this asynchronous error.
  void set_async_error(int rank, const std::string& text);

 private:
  struct Message {
    const void* data = nullptr;
    std::size_t bytes = 0;
    bool taken = false;
  };
  /// The ranks of one communicator.
  struct Clique {
    std::mutex mutex;
    std::condition_variable changed;
    int size = 0;
    int joined = 0;
    /// Ranks that end or abort their communicators.
    int leaving = 0;
    /// The clique of the others, by the set of ranks that are gone.
    std::map<std::set<int>, std::shared_ptr<Clique>> shrunk;
    /// Messages by sender and receiver, in the order in which their streams have come to them.
    std::map<std::pair<int, int>, std::deque<Message*>> under_way;
  };
  struct Comm : std::enable_shared_from_this<Comm> {
    std::shared_ptr<Clique> clique;
    int rank = 0;
    /// Under the clique's mutex.
    bool aborted = false;
    int groups_under_way = 0;
    /// Groups in CUDA graphs.
    int captured_groups = 0;
    std::optional<std::string> error;
  };
  struct Part {
    bool sends = false;
    void* data = nullptr;
    std::size_t bytes = 0;
    int peer = 0;
  };
  struct Group {
    int depth = 0;
    Comm* comm = nullptr;
    gpu::StreamHandle stream = nullptr;
    std::vector<Part> parts;
  };

  void check(const std::string& call);
  void add(const Part& part, gpu::CommHandle comm, gpu::StreamHandle stream,
           const std::string& call);
  void run(Comm& comm, const std::vector<Part>& parts);
  Comm& comm_of(gpu::CommHandle handle);
  /// Ends the groups under way.
  void stop(Comm& comm);
  static void wait_for_graphs(Comm& comm);
  static void wait_for_others(Comm& comm);
  /// Returns when all of its ranks have come.
  gpu::CommHandle join_clique(const std::shared_ptr<Clique>& clique, int rank);

  static thread_local Group group_;
  std::shared_ptr<CudaStandIn> cuda_;
  std::mutex mutex_;
  std::map<gpu::NcclId, std::shared_ptr<Clique>> cliques_;
  /// Communicators are never freed before the end: running operations may look at them.
  std::vector<std::shared_ptr<Comm>> comms_;
  std::map<const void*, Comm*> live_;
  int ids_ = 0;
};

}  // namespace bluefog::testing
