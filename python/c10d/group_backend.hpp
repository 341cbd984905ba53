#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "bluefog_cpp/context.hpp"
#include "python/c10d/group_calls.hpp"
#include "python/c10d/group_place.hpp"
#include "python/c10d/group_work.hpp"
#include "python/c10d/live_group.hpp"
#include "python/c10d/tensors.hpp"

namespace bluefog::c10d_backend {

using ::c10d::AllgatherOptions;
using ::c10d::AllreduceCoalescedOptions;
using ::c10d::AllreduceOptions;
using ::c10d::AllToAllOptions;
using ::c10d::BarrierOptions;
using ::c10d::BroadcastOptions;
using ::c10d::GatherOptions;
using ::c10d::ReduceOptions;
using ::c10d::ReduceScatterOptions;
using ::c10d::ScatterOptions;

using bluefog::Work;

/// A process group of torch.distributed on a context of its own (docs/c10d.md).
///
/// Its functions are those of `c10d::Backend`, called without the interpreter's lock. A call whose
/// arguments are refused counts, and the other ranks of it are told why.
class GroupBackend final : public ::c10d::Backend {
 public:
  /// Collective over the ranks of the group, which meet in its store.
  static c10::intrusive_ptr<::c10d::Backend> create(const c10::intrusive_ptr<::c10d::Store>& store,
                                                    const GroupPlace& place);

  GroupBackend(std::shared_ptr<Context> context, const GroupPlace& place);
  ~GroupBackend() override;

  const std::string getBackendName() const override { return "bluefog"; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }
  void setTimeout(std::chrono::milliseconds timeout) override;
  void setSequenceNumberForGroup() override {}
  std::uint64_t getSequenceNumberForGroup() override { return calls_.count(); }
  /// Memory that the ranks of a host share, in which sums take no copies. DDP asks for its
  /// buckets'.
  bool supportsTensorAlloc(c10::DeviceIndex device) override { return device < 0; }
  at::Tensor allocateTensor(long size, at::TensorOptions options) override;
  void shutdown() override { close(); }
  void abort() override { close(); }

  WorkHandle allreduce(Tensors& tensors, const AllreduceOptions& options) override;
  WorkHandle allreduce_coalesced(Tensors& tensors,
                                 const AllreduceCoalescedOptions& options) override;
  WorkHandle broadcast(Tensors& tensors, const BroadcastOptions& options) override;
  WorkHandle reduce(Tensors& tensors, const ReduceOptions& options) override;
  WorkHandle allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                       const AllgatherOptions& options) override;
  WorkHandle _allgather_base(at::Tensor& output, at::Tensor& input,
                             const AllgatherOptions& options) override;
  WorkHandle allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                 const AllgatherOptions& options) override;
  WorkHandle allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                             const AllgatherOptions& options) override;
  WorkHandle reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                            const ReduceScatterOptions& options) override;
  WorkHandle _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                  const ReduceScatterOptions& options) override;
  WorkHandle reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                             const ReduceScatterOptions& options) override;
  WorkHandle gather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const GatherOptions& options) override;
  WorkHandle scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                     const ScatterOptions& options) override;
  WorkHandle alltoall(Tensors& outputs, Tensors& inputs, const AllToAllOptions& options) override;
  WorkHandle alltoall_base(at::Tensor& output, at::Tensor& input,
                           std::vector<std::int64_t>& output_rows,
                           std::vector<std::int64_t>& input_rows,
                           const AllToAllOptions& options) override;
  WorkHandle send(Tensors& tensors, int target, int tag) override;
  WorkHandle recv(Tensors& tensors, int source, int tag) override;
  WorkHandle recvAnysource(Tensors& tensors, int tag) override;
  WorkHandle barrier(const BarrierOptions& options) override;

 private:
  /// An operation that has not been submitted; making one throws the errors of its arguments.
  using Made = std::shared_ptr<Operation>;
  [[nodiscard]] Made allgather_lists(const CallPlace& place, const at::Tensor& input,
                                     const Tensors& outputs, Keeps keeps, std::string form);
  [[nodiscard]] Made allgather_flat(const CallPlace& place, const at::Tensor& input,
                                    const at::Tensor& output, Keeps keeps, std::string form);
  [[nodiscard]] Made reduce_scatter_flat(const CallPlace& place, const at::Tensor& input,
                                         const at::Tensor& output, const ::c10d::ReduceOp& rule,
                                         Keeps keeps, std::string form);
  void close() noexcept;

  std::shared_ptr<Context> context_;
  std::shared_ptr<const GroupParts> parts_;
  c10::intrusive_ptr<Options> options_;
  GroupCalls calls_;
  LiveGroup live_;
};

}  // namespace bluefog::c10d_backend
