"""Operations that ranks call together. Without `_nonblocking` they return when the result is there;
with it they return a handle for `poll`, `synchronize` and `wait`. Names that end in `_` write into
their argument, the others return a new tensor.

All ranks make the same calls in the same order. `name` appears in messages and in the timeline, and
the ranks' names are compared. Tensors are dense; float16, bfloat16, float32 and float64 where
something is averaged. Gradients do not flow through.
"""

from typing import Callable, Mapping, Optional, Sequence, Tuple

import torch

from bluefog_cpp._extension import core
from bluefog_cpp.errors import InvalidArgument
from bluefog_cpp.torch import _plans, _steering
from bluefog_cpp.torch._deprecation import renamed
from bluefog_cpp.torch._plans import DstWeights
from bluefog_cpp.torch._ranges import ranged
from bluefog_cpp.torch._runtime import Runtime, current
from bluefog_cpp.torch._tensors import copied, elements, like, store

_NEW_NAMES = {"neighbor_weights": "src_weights", "send_neighbors": "dst_weights"}
_NEW_MACHINE_NAMES = {"neighbor_machine_weights": "src_machine_weights",
                      "send_neighbor_machines": "dst_machine_weights"}


# ---- handles


def poll(handle: int) -> bool:
    """Whether the call is complete; never blocks. Raises InvalidArgument for an unknown handle."""
    return current().is_done(handle)


@ranged
def synchronize(handle: int) -> Optional[torch.Tensor]:
    """Blocks until the call is complete and returns its result. The handle is used up.

    Raises what went wrong in the call, and InvalidArgument for an unknown handle.
    """
    return current().wait(handle)


wait = synchronize


# ---- neighbor_allreduce


@renamed(**_NEW_NAMES)
@ranged
def neighbor_allreduce(tensor: torch.Tensor, *, self_weight: Optional[float] = None,
                       src_weights: Optional[Mapping[int, float]] = None,
                       dst_weights: Optional[DstWeights] = None, enable_topo_check: bool = True,
                       name: Optional[str] = None) -> torch.Tensor:
    """The weighted average with neighbours.

        result_i = self_weight x_i + Σ_j src_weights_i[j] dst_weights_j[i] x_j

    No weights: those of the topology. `self_weight` and `src_weights`: the topology's edges with
    other weights; neighbours that are left out count 0. With `dst_weights` too (a list of ranks,
    sent with weight 1, or a dict): any edges, a dynamic step; `enable_topo_check` then has the ranks
    compare senders and receivers first, which costs one all-gather and makes a mismatch an error on
    every rank.

    Cost: one message of the tensor's size to each out-neighbour.
    Raises InvalidArgument, MismatchError, PeerFailure, TimeoutError.
    """
    runtime = current()
    source = runtime.source("neighbor_allreduce", tensor, name)
    step = _neighbor_step(runtime, self_weight, src_weights, dst_weights, enable_topo_check)
    result = core.fresh_like(source)
    _run(runtime, source, result, step, name)
    return like(result, tensor)


@renamed(**_NEW_NAMES)
@ranged
def neighbor_allreduce_(tensor: torch.Tensor, *, self_weight: Optional[float] = None,
                        src_weights: Optional[Mapping[int, float]] = None,
                        dst_weights: Optional[DstWeights] = None, enable_topo_check: bool = True,
                        name: Optional[str] = None) -> torch.Tensor:
    """`neighbor_allreduce` in place: no memory is needed for the result."""
    runtime = current()
    source = runtime.source("neighbor_allreduce", tensor, name)
    step = _neighbor_step(runtime, self_weight, src_weights, dst_weights, enable_topo_check)
    _run(runtime, source, source, step, name)
    return store(source, tensor)


@renamed(**_NEW_NAMES)
@ranged
def neighbor_allreduce_nonblocking(tensor: torch.Tensor, *, self_weight: Optional[float] = None,
                                   src_weights: Optional[Mapping[int, float]] = None,
                                   dst_weights: Optional[DstWeights] = None,
                                   enable_topo_check: bool = True,
                                   name: Optional[str] = None) -> int:
    """Starts `neighbor_allreduce`; the tensor may not change until its handle was waited for."""
    runtime = current()
    source = runtime.source("neighbor_allreduce", tensor, name)
    step = _neighbor_step(runtime, self_weight, src_weights, dst_weights, enable_topo_check)
    result = core.fresh_like(source)
    work = step.run(lambda: core.start_neighbor_allreduce(runtime.context, source, result, step.plan,
                                                          step.checked, name or ""))
    return runtime.add(work, lambda _: like(result, tensor), step.failed)


@renamed(**_NEW_NAMES)
@ranged
def neighbor_allreduce_nonblocking_(tensor: torch.Tensor, *, self_weight: Optional[float] = None,
                                    src_weights: Optional[Mapping[int, float]] = None,
                                    dst_weights: Optional[DstWeights] = None,
                                    enable_topo_check: bool = True,
                                    name: Optional[str] = None) -> int:
    """Starts `neighbor_allreduce_`."""
    runtime = current()
    source = runtime.source("neighbor_allreduce", tensor, name)
    step = _neighbor_step(runtime, self_weight, src_weights, dst_weights, enable_topo_check)
    work = step.run(lambda: core.start_neighbor_allreduce(runtime.context, source, source, step.plan,
                                                          step.checked, name or ""))
    return runtime.add(work, lambda _: store(source, tensor), step.failed)


def _neighbor_step(runtime: Runtime, *arguments) -> _plans.Step:
    return runtime.or_refuse(lambda: _plans.neighbor_plan(runtime, *arguments))


def _run(runtime: Runtime, source: torch.Tensor, result: torch.Tensor, step: _plans.Step,
         name: Optional[str]) -> None:
    step.run(lambda: core.neighbor_allreduce(runtime.context, source, result, step.plan, step.checked,
                                             name or ""))


# ---- hierarchical_neighbor_allreduce


@renamed(**_NEW_MACHINE_NAMES)
@ranged
def hierarchical_neighbor_allreduce(tensor: torch.Tensor, *, self_weight: Optional[float] = None,
                                    src_machine_weights: Optional[Mapping[int, float]] = None,
                                    dst_machine_weights: Optional[DstWeights] = None,
                                    enable_topo_check: bool = False,
                                    name: Optional[str] = None) -> torch.Tensor:
    """The average inside each machine, then the weighted average between machines, by machine rank:

        y_m = mean of x over machine m
        result = self_weight y_m + Σ_k src_machine_weights[k] dst_machine_weights_k[m] y_k

    Every rank of a machine gets the same bits. All three weights or none; without them the machine
    topology's (`set_machine_topology`), and StateError where none is set.
    """
    runtime = current()
    return runtime.wait(_start_hierarchical(runtime, tensor, self_weight, src_machine_weights,
                                            dst_machine_weights, enable_topo_check, name))


@renamed(**_NEW_MACHINE_NAMES)
@ranged
def hierarchical_neighbor_allreduce_nonblocking(
        tensor: torch.Tensor, *, self_weight: Optional[float] = None,
        src_machine_weights: Optional[Mapping[int, float]] = None,
        dst_machine_weights: Optional[DstWeights] = None, enable_topo_check: bool = False,
        name: Optional[str] = None) -> int:
    """Starts `hierarchical_neighbor_allreduce`."""
    return _start_hierarchical(current(), tensor, self_weight, src_machine_weights,
                               dst_machine_weights, enable_topo_check, name)


def _start_hierarchical(runtime, tensor, self_weight, src, dst, enable_topo_check, name) -> int:
    result = runtime.source("hierarchical_neighbor_allreduce", tensor, name, copied)
    step = runtime.or_refuse(
        lambda: _plans.machine_plan(runtime, self_weight, src, dst, enable_topo_check))
    work = step.run(lambda: core.start_hierarchical_neighbor_allreduce(
        runtime.context, result, step.plan, step.checked, name or ""))
    return runtime.add(work, lambda _: like(result, tensor), step.failed)


# ---- allreduce


@ranged
def allreduce(tensor: torch.Tensor, average: bool = True, is_hierarchical_local: bool = False,
              name: Optional[str] = None) -> torch.Tensor:
    """The average over all ranks, or the sum: the same bits on each.

    is_hierarchical_local: over the ranks of each machine for itself. Sums take integers too.
    """
    return wait(allreduce_nonblocking(tensor, average, is_hierarchical_local, name))


@ranged
def allreduce_nonblocking(tensor: torch.Tensor, average: bool = True,
                          is_hierarchical_local: bool = False, name: Optional[str] = None) -> int:
    """Starts `allreduce`."""
    return _start_in_place("allreduce", copied, tensor, like,
                           _allreduce(average, is_hierarchical_local), name)


@ranged
def allreduce_(tensor: torch.Tensor, average: bool = True, is_hierarchical_local: bool = False,
               name: Optional[str] = None) -> torch.Tensor:
    """`allreduce` in place."""
    return wait(allreduce_nonblocking_(tensor, average, is_hierarchical_local, name))


@ranged
def allreduce_nonblocking_(tensor: torch.Tensor, average: bool = True,
                           is_hierarchical_local: bool = False, name: Optional[str] = None) -> int:
    """Starts `allreduce_`."""
    return _start_in_place("allreduce", elements, tensor, store,
                           _allreduce(average, is_hierarchical_local), name)


def _allreduce(average: bool, in_machine: bool) -> Callable:
    runtime = current()
    for argument, value in (("average", average), ("is_hierarchical_local", in_machine)):
        runtime.or_refuse(lambda: _plans.check_argument(runtime, "allreduce", argument,
                                                        _steering.switch, value))
    return lambda context, buffer, name: core.start_allreduce(context, buffer, average, in_machine,
                                                              name)


# ---- broadcast


@ranged
def broadcast(tensor: torch.Tensor, root_rank: int, name: Optional[str] = None) -> torch.Tensor:
    """The root's tensor, on every rank. Any dtype, the same shape everywhere."""
    return wait(broadcast_nonblocking(tensor, root_rank, name))


@ranged
def broadcast_nonblocking(tensor: torch.Tensor, root_rank: int, name: Optional[str] = None) -> int:
    """Starts `broadcast`."""
    return _start_in_place("broadcast", copied, tensor, like, _broadcast(root_rank), name)


@ranged
def broadcast_(tensor: torch.Tensor, root_rank: int, name: Optional[str] = None) -> torch.Tensor:
    """`broadcast` in place."""
    return wait(broadcast_nonblocking_(tensor, root_rank, name))


@ranged
def broadcast_nonblocking_(tensor: torch.Tensor, root_rank: int, name: Optional[str] = None) -> int:
    """Starts `broadcast_`."""
    return _start_in_place("broadcast", elements, tensor, store, _broadcast(root_rank), name)


def _broadcast(root_rank: int) -> Callable:
    runtime = current()
    if not hasattr(root_rank, "__index__"):
        runtime.or_refuse(lambda: _refuse_root(runtime, root_rank))
    return lambda context, buffer, name: core.start_broadcast(context, buffer, root_rank, name)


def _refuse_root(runtime: Runtime, root_rank: int) -> None:
    raise InvalidArgument(f"rank {runtime.rank}, broadcast: expected a rank as the root, found "
                          f"{root_rank!r}")


def _start_in_place(call: str, take: Callable, tensor: torch.Tensor, finish: Callable,
                    start: Callable, name: Optional[str]) -> int:
    runtime = current()
    buffer = runtime.source(call, tensor, name, take)
    work = start(runtime.context, buffer, name or "")
    return runtime.add(work, lambda _: finish(buffer, tensor))


# ---- gathers


@ranged
def allgather(tensor: torch.Tensor, name: Optional[str] = None) -> torch.Tensor:
    """The ranks' tensors one after the other along dimension 0, by rank. Their first dimension may
    differ, the others not. A 0-d tensor counts as one of one element."""
    return wait(allgather_nonblocking(tensor, name))


@ranged
def allgather_nonblocking(tensor: torch.Tensor, name: Optional[str] = None) -> int:
    """Starts `allgather`."""
    runtime = current()
    work = core.start_allgather(runtime.context, runtime.source("allgather", tensor, name), name or "")
    return runtime.add(work, lambda result: like(result, tensor))


@ranged
def neighbor_allgather(tensor: torch.Tensor, *, src_ranks: Optional[Sequence[int]] = None,
                       dst_ranks: Optional[Sequence[int]] = None, enable_topo_check: bool = True,
                       name: Optional[str] = None) -> torch.Tensor:
    """As `allgather`, over the in-neighbours of the topology, or over `src_ranks` where `dst_ranks`
    says whom this rank sends to: by rising rank, without this rank's own."""
    return wait(neighbor_allgather_nonblocking(tensor, src_ranks=src_ranks, dst_ranks=dst_ranks,
                                               enable_topo_check=enable_topo_check, name=name))


@ranged
def neighbor_allgather_nonblocking(tensor: torch.Tensor, *,
                                   src_ranks: Optional[Sequence[int]] = None,
                                   dst_ranks: Optional[Sequence[int]] = None,
                                   enable_topo_check: bool = True,
                                   name: Optional[str] = None) -> int:
    """Starts `neighbor_allgather`."""
    runtime = current()
    source = runtime.source("neighbor_allgather", tensor, name)
    step = runtime.or_refuse(
        lambda: _plans.gather_plan(runtime, src_ranks, dst_ranks, enable_topo_check))
    work = step.run(lambda: core.start_neighbor_allgather(runtime.context, source, step.plan,
                                                          step.checked, name or ""))
    return runtime.add(work, lambda result: like(result, tensor), step.failed)


# ---- pair_gossip, barrier


@ranged
def pair_gossip(tensor: torch.Tensor, target_rank: int, self_weight: Optional[float] = None,
                pair_weight: Optional[float] = None, name: Optional[str] = None) -> torch.Tensor:
    """self_weight x + pair_weight x_target, between two ranks that call it with each other as the
    target; other ranks have no part in it. Both weights, or neither for the average."""
    return wait(pair_gossip_nonblocking(tensor, target_rank, self_weight, pair_weight, name))


@ranged
def pair_gossip_nonblocking(tensor: torch.Tensor, target_rank: int,
                            self_weight: Optional[float] = None,
                            pair_weight: Optional[float] = None, name: Optional[str] = None) -> int:
    """Starts `pair_gossip`."""
    runtime = current()
    partner = _partner(runtime, target_rank)
    weights = runtime.or_refuse(lambda: _pair_weights(runtime, self_weight, pair_weight), partner)
    source = runtime.source("pair_gossip", tensor, name, partner=partner)
    result = core.fresh_like(source)
    work = core.start_pair_gossip(runtime.context, source, result, partner, *weights, name or "")
    return runtime.add(work, lambda _: like(result, tensor))


def _partner(runtime: Runtime, target_rank: int) -> int:
    """The other rank of the call; where it is none, there is nobody to tell of a refusal."""
    is_rank = hasattr(target_rank, "__index__") and not isinstance(target_rank, bool)
    if not is_rank or not 0 <= int(target_rank) < runtime.size or target_rank == runtime.rank:
        raise InvalidArgument(f"rank {runtime.rank}, pair_gossip: expected another rank below "
                              f"{runtime.size} as the target, found {target_rank!r}")
    return int(target_rank)


def _pair_weights(runtime: Runtime, self_weight: Optional[float],
                  pair_weight: Optional[float]) -> Tuple[float, float]:
    place = f"rank {runtime.rank}, pair_gossip: expected self_weight and pair_weight"
    if self_weight is None and pair_weight is None:
        return 0.5, 0.5
    if self_weight is None or pair_weight is None:
        raise InvalidArgument(f"{place} together, or neither")
    try:
        return float(self_weight), float(pair_weight)
    except (TypeError, ValueError):
        raise InvalidArgument(f"{place} as numbers, found {self_weight!r} and {pair_weight!r}") from None


@ranged
def barrier() -> None:
    """Returns when every rank has entered it."""
    core.barrier(current().context)
