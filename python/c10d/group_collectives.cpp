// The collectives of a group: arguments of torch as buffers of this library.
#include <algorithm>
#include <utility>

#include "ops/allreduce.hpp"
#include "ops/barrier.hpp"
#include "ops/broadcast.hpp"
#include "ops/calls/series.hpp"
#include "ops/parts.hpp"
#include "ops/reduce.hpp"
#include "python/c10d/arguments.hpp"
#include "python/c10d/group_backend.hpp"

namespace bluefog::c10d_backend {
namespace {

/// The values of a tensor that a call reduces as they lie; `how` gets the rule, and what the ranks
/// compare.
template <typename OptionsOfCall>
BufferView reduced_in_place(const CallPlace& place, const at::Tensor& tensor,
                            const ::c10d::ReduceOp& rule, Keeps keeps, OptionsOfCall& how) {
  BufferView values = operand_of(place, tensor, rule, Order::AsTheyLie, keeps);
  how.reduction = reduction_of(place, rule, tensor);
  how.name = form_of(tensor, Order::AsTheyLie);
  return values;
}

}  // namespace

WorkHandle GroupBackend::allreduce(Tensors& tensors, const AllreduceOptions& options) {
  const Manner manner = manner_of(OpType::ALLREDUCE, options);
  return calls_.started(manner, "all_reduce", tensors, [&](const CallPlace& place, Calls& calls) {
    ops::AllreduceOptions how{.buffer = ops::BufferUse::Copy};
    BufferView view = calls_.arguments([&] {
      return reduced_in_place(place, only(place, "tensors", tensors), options.reduceOp,
                              keeps(manner), how);
    });
    calls.push_back(ops::allreduce_nonblocking(*context_, std::move(view), how));
  });
}

WorkHandle GroupBackend::allreduce_coalesced(Tensors& tensors,
                                             const AllreduceCoalescedOptions& options) {
  const Manner manner = manner_of(OpType::ALLREDUCE_COALESCED, options);
  return calls_.started(
      manner, "all_reduce_coalesced", tensors, [&](const CallPlace& place, Calls& calls) {
        auto parts = calls_.operations(place, tensors.size(), [&](std::size_t i) {
          BufferView view =
              operand_of(place, tensors[i], options.reduceOp, Order::AsTheyLie, keeps(manner));
          return ops::make_allreduce(
              *context_, std::move(view),
              {.name = form_of(tensors[i], Order::AsTheyLie, i, tensors.size()),
               .reduction = reduction_of(place, options.reduceOp, tensors[i]),
               .buffer = ops::BufferUse::Copy});
        });
        calls.push_back(ops::submit_series(*context_, OpKind::Allreduce, std::move(parts)));
      });
}

WorkHandle GroupBackend::broadcast(Tensors& tensors, const BroadcastOptions& options) {
  const Manner manner = manner_of(OpType::BROADCAST, options);
  return calls_.started(manner, "broadcast", tensors, [&](const CallPlace& place, Calls& calls) {
    int root = 0;
    BufferView view = calls_.arguments([&] {
      root = root_of(place, options.rootRank, getSize());
      return bytes_of(place, only(place, "tensors", tensors), Order::AsTheyLie, keeps(manner));
    });
    calls.push_back(ops::broadcast_nonblocking(
        *context_, std::move(view), root, {.name = form_of(tensors.front(), Order::AsTheyLie)}));
  });
}

WorkHandle GroupBackend::reduce(Tensors& tensors, const ReduceOptions& options) {
  const Manner manner = manner_of(OpType::REDUCE, options);
  return calls_.started(manner, "reduce", tensors, [&](const CallPlace& place, Calls& calls) {
    ops::ReduceOptions how;
    int root = 0;
    BufferView view = calls_.arguments([&] {
      root = root_of(place, options.rootRank, getSize());
      return reduced_in_place(place, only(place, "tensors", tensors), options.reduceOp,
                              keeps(manner), how);
    });
    calls.push_back(ops::reduce_nonblocking(*context_, std::move(view), root, how));
  });
}

// ---- gathering

GroupBackend::Made GroupBackend::allgather_lists(const CallPlace& place, const at::Tensor& input,
                                                 const Tensors& outputs, Keeps keeps,
                                                 std::string form) {
  return ops::make_allgather_parts(*context_, part_of(place, input, input, keeps),
                                   parts_of<BufferView>(place, outputs, input, keeps),
                                   {.name = std::move(form)});
}

GroupBackend::Made GroupBackend::allgather_flat(const CallPlace& place, const at::Tensor& input,
                                                const at::Tensor& output, Keeps keeps,
                                                std::string form) {
  const ConstBufferView own = part_of(place, input, input, keeps);
  auto places =
      equal_parts(place, "output", part_of(place, output, input, keeps), getSize(), own.count);
  return ops::make_allgather_parts(*context_, own, std::move(places), {.name = std::move(form)});
}

WorkHandle GroupBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                   const AllgatherOptions& options) {
  const Manner manner = manner_of(OpType::ALLGATHER, options);
  const Tensors result = outputs.empty() ? Tensors() : outputs.front();
  return calls_.started(manner, "all_gather", result, [&](const CallPlace& place, Calls& calls) {
    calls.push_back(calls_.submit([&] {
      const at::Tensor& input = only(place, "inputs", inputs);
      check_count(place, "lists of outputs", 1, outputs.size());
      return allgather_lists(place, input, outputs.front(), keeps(manner),
                             form_of(input, Order::ByRows));
    }));
  });
}

WorkHandle GroupBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                         const AllgatherOptions& options) {
  const Manner manner = manner_of(OpType::_ALLGATHER_BASE, options);
  return calls_.started(
      manner, "all_gather_into_tensor", {output}, [&](const CallPlace& place, Calls& calls) {
        calls.push_back(calls_.submit([&] {
          return allgather_flat(place, input, output, keeps(manner), form_of(input, Order::ByRows));
        }));
      });
}

// torch gives the lists by rank, with a tensor for each input.
WorkHandle GroupBackend::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                             const AllgatherOptions& options) {
  const Manner manner = manner_of(OpType::ALLGATHER_COALESCED, options);
  Tensors result;
  for (const Tensors& of_rank : outputs) {
    result.insert(result.end(), of_rank.begin(), of_rank.end());
  }
  return calls_.started(
      manner, "all_gather_coalesced", std::move(result), [&](const CallPlace& place, Calls& calls) {
        const std::size_t count = inputs.size();
        auto parts = calls_.operations(place, count, [&](std::size_t i) {
          check_count(place, "lists of outputs", static_cast<std::size_t>(getSize()),
                      outputs.size());
          Tensors places;
          for (const Tensors& of_rank : outputs) {
            check_count(place, "outputs", count, of_rank.size());
            places.push_back(of_rank[i]);
          }
          return allgather_lists(place, inputs[i], places, keeps(manner),
                                 form_of(inputs[i], Order::ByRows, i, count));
        });
        calls.push_back(ops::submit_series(*context_, OpKind::Allgather, std::move(parts)));
      });
}

WorkHandle GroupBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                         const AllgatherOptions& options) {
  const Manner manner = manner_of(OpType::COALESCED, options);
  return calls_.started(
      manner, "all_gather_into_tensor_coalesced", outputs,
      [&](const CallPlace& place, Calls& calls) {
        const std::size_t count = std::max(inputs.size(), outputs.size());
        auto parts = calls_.operations(place, count, [&](std::size_t i) {
          check_count(place, "outputs", inputs.size(), outputs.size());
          return allgather_flat(place, inputs[i], outputs[i], keeps(manner),
                                form_of(inputs[i], Order::ByRows, i, count));
        });
        calls.push_back(ops::submit_series(*context_, OpKind::Allgather, std::move(parts)));
      });
}

WorkHandle GroupBackend::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                                const GatherOptions& options) {
  const Manner manner = manner_of(OpType::GATHER, options);
  const Tensors result = outputs.empty() ? Tensors() : outputs.front();
  return calls_.started(manner, "gather", result, [&](const CallPlace& place, Calls& calls) {
    ConstBufferView own;
    int root = 0;
    auto places = calls_.arguments([&] {
      root = root_of(place, options.rootRank, getSize());
      const at::Tensor& input = only(place, "inputs", inputs);
      check_count(place, "lists of outputs", getRank() == root ? 1 : 0, outputs.size());
      own = part_of(place, input, input, keeps(manner));
      return parts_of<BufferView>(place, result, input, keeps(manner));
    });
    calls.push_back(ops::gather_nonblocking(*context_, std::move(own), std::move(places), root,
                                            {.name = form_of(inputs.front(), Order::ByRows)}));
  });
}

// ---- scattering

WorkHandle GroupBackend::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                 const ScatterOptions& options) {
  const Manner manner = manner_of(OpType::SCATTER, options);
  return calls_.started(manner, "scatter", outputs, [&](const CallPlace& place, Calls& calls) {
    BufferView own;
    int root = 0;
    auto parts = calls_.arguments([&] {
      root = root_of(place, options.rootRank, getSize());
      const at::Tensor& output = only(place, "outputs", outputs);
      check_count(place, "lists of inputs", getRank() == root ? 1 : 0, inputs.size());
      own = part_of(place, output, output, keeps(manner));
      return inputs.empty()
                 ? std::vector<ConstBufferView>()
                 : parts_of<ConstBufferView>(place, inputs.front(), output, keeps(manner));
    });
    calls.push_back(ops::scatter_nonblocking(*context_, std::move(parts), std::move(own), root,
                                             {.name = form_of(outputs.front(), Order::ByRows)}));
  });
}

WorkHandle GroupBackend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                        const ReduceScatterOptions& options) {
  const Manner manner = manner_of(OpType::REDUCE_SCATTER, options);
  return calls_.started(
      manner, "reduce_scatter", outputs, [&](const CallPlace& place, Calls& calls) {
        ops::ReduceOptions how;
        BufferView own;
        auto parts = calls_.arguments([&] {
          const at::Tensor& output = only(place, "outputs", outputs);
          own = operand_of(place, output, options.reduceOp, Order::ByRows, keeps(manner));
          how.reduction = reduction_of(place, options.reduceOp, output);
          check_count(place, "lists of inputs", 1, inputs.size());
          std::vector<ConstBufferView> views;
          for (const at::Tensor& input : inputs.front()) {
            views.emplace_back(
                operand_of(place, input, options.reduceOp, Order::ByRows, keeps(manner)));
            check_same_dtype(place, input, output);
          }
          return views;
        });
        calls.push_back(
            ops::reduce_scatter_nonblocking(*context_, std::move(parts), std::move(own), how));
      });
}

GroupBackend::Made GroupBackend::reduce_scatter_flat(const CallPlace& place,
                                                     const at::Tensor& input,
                                                     const at::Tensor& output,
                                                     const ::c10d::ReduceOp& rule, Keeps keeps,
                                                     std::string form) {
  BufferView own = operand_of(place, output, rule, Order::ByRows, keeps);
  const BufferView whole = operand_of(place, input, rule, Order::ByRows, keeps);
  check_same_dtype(place, input, output);
  const ops::Reduction reduction = reduction_of(place, rule, output);
  auto parts = as_inputs(equal_parts(place, "input", whole, getSize(), own.count));
  return ops::make_reduce_scatter(*context_, std::move(parts), std::move(own),
                                  {.name = std::move(form), .reduction = reduction});
}

WorkHandle GroupBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                              const ReduceScatterOptions& options) {
  const Manner manner = manner_of(OpType::_REDUCE_SCATTER_BASE, options);
  return calls_.started(
      manner, "reduce_scatter_tensor", {output}, [&](const CallPlace& place, Calls& calls) {
        calls.push_back(calls_.submit([&] {
          return reduce_scatter_flat(place, input, output, options.reduceOp, keeps(manner),
                                     form_of(input, Order::ByRows));
        }));
      });
}

WorkHandle GroupBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                         const ReduceScatterOptions& options) {
  const Manner manner = manner_of(OpType::COALESCED, options);
  return calls_.started(
      manner, "reduce_scatter_tensor_coalesced", outputs,
      [&](const CallPlace& place, Calls& calls) {
        const std::size_t count = std::max(inputs.size(), outputs.size());
        auto parts = calls_.operations(place, count, [&](std::size_t i) {
          check_count(place, "outputs", inputs.size(), outputs.size());
          return reduce_scatter_flat(place, inputs[i], outputs[i], options.reduceOp, keeps(manner),
                                     form_of(inputs[i], Order::ByRows, i, count));
        });
        calls.push_back(ops::submit_series(*context_, OpKind::ReduceScatter, std::move(parts)));
      });
}

WorkHandle GroupBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                  const AllToAllOptions& options) {
  const Manner manner = manner_of(OpType::ALLTOALL, options);
  return calls_.started(manner, "all_to_all", outputs, [&](const CallPlace& place, Calls& calls) {
    std::vector<ConstBufferView> sent;
    auto taken = calls_.arguments([&] {
      check_count(place, "inputs", static_cast<std::size_t>(getSize()), inputs.size());
      check_count(place, "outputs", static_cast<std::size_t>(getSize()), outputs.size());
      sent = parts_of<ConstBufferView>(place, inputs, inputs.front(), keeps(manner));
      return parts_of<BufferView>(place, outputs, inputs.front(), keeps(manner));
    });
    calls.push_back(ops::alltoall_nonblocking(*context_, std::move(sent), std::move(taken),
                                              {.name = form_of(inputs.front(), Order::ByRows)}));
  });
}

WorkHandle GroupBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                       std::vector<std::int64_t>& output_rows,
                                       std::vector<std::int64_t>& input_rows,
                                       const AllToAllOptions& options) {
  const Manner manner = manner_of(OpType::ALLTOALL_BASE, options);
  return calls_.started(
      manner, "all_to_all_single", {output}, [&](const CallPlace& place, Calls& calls) {
        std::vector<ConstBufferView> sent;
        auto taken = calls_.arguments([&] {
          const BufferView from = part_of(place, input, input, keeps(manner));
          const BufferView to = part_of(place, output, input, keeps(manner));
          sent = as_inputs(parts_by_rows(place, "input", from, input, input_rows, getSize()));
          return parts_by_rows(place, "output", to, output, output_rows, getSize());
        });
        calls.push_back(ops::alltoall_nonblocking(*context_, std::move(sent), std::move(taken),
                                                  {.name = form_of(input, Order::ByRows)}));
      });
}

WorkHandle GroupBackend::barrier(const BarrierOptions& options) {
  return calls_.started(manner_of(OpType::BARRIER, options), "barrier", {},
                        [&](const CallPlace& /*place*/, Calls& calls) {
                          calls.push_back(ops::barrier_nonblocking(*context_));
                        });
}

}  // namespace bluefog::c10d_backend
