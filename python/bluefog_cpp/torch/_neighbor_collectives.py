"""The operations of ranks with their neighbours, or with one other rank. All that is said of
operations in `_collectives` holds for them.
"""

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from bluefog_cpp import _arguments
from bluefog_cpp._arguments import checked
from bluefog_cpp._extension import core
from bluefog_cpp.errors import InvalidArgument, LateMismatchError
from bluefog_cpp.torch import _plans
from bluefog_cpp.torch._collectives import wait
from bluefog_cpp.torch._deprecation import renamed
from bluefog_cpp.torch._plans import DstWeights
from bluefog_cpp.torch._prepared import PreparedCall, prepared_by
from bluefog_cpp.torch._ranges import ranged
from bluefog_cpp.torch._runtime import Runtime, current
from bluefog_cpp.torch._tensors import (
    all_to_write,
    check_apart,
    check_writable,
    copied,
    elements,
    elements_to_write,
    range_of,
    store,
    to_device_of,
)

_NEW_NAMES = {"neighbor_weights": "src_weights", "send_neighbors": "dst_weights"}
_NEW_MACHINE_NAMES = {"neighbor_machine_weights": "src_machine_weights",
                      "send_neighbor_machines": "dst_machine_weights"}


# ---- neighbor_allreduce


@renamed(**_NEW_NAMES)
@ranged
def neighbor_allreduce(tensor: torch.Tensor, *, self_weight: float | None = None,
                       src_weights: Mapping[int, float] | None = None,
                       dst_weights: DstWeights | None = None, enable_topo_check: bool = True,
                       name: str | None = None) -> torch.Tensor:
    """The weighted average with neighbours.

        result_i = self_weight x_i + Σ_j src_weights_i[j] dst_weights_j[i] x_j

    Equal values stay exactly that value where these weights sum to 1 (within 1e-9).
    No weights: those of the topology. `self_weight` and `src_weights`: the topology's edges with
    other weights; neighbours that are left out count 0. With `dst_weights` too (a list of ranks,
    sent with weight 1, or a dict): any edges, a dynamic step; `enable_topo_check` then has the
    ranks compare senders and receivers first, which costs one all-gather and makes a mismatch an
    error on every rank. A rank may be among its own sources and destinations, both at once: what it
    sends to itself is added to its self weight.

    Cost: one message of the tensor's size to each out-neighbour.
    Raises InvalidArgument for `self_weight` without `src_weights` or the reverse, `dst_weights`
    without both, ranks that are none, weights that are not finite, and without `dst_weights` for
    sources that are no in-neighbours.
    Source: D-PSGD, arXiv 1705.09056.
    """
    runtime = current()
    source = runtime.source("neighbor_allreduce", tensor, name, elements)
    step = _neighbor_step(runtime, self_weight, src_weights, dst_weights, enable_topo_check)
    result = runtime.result_like(source)
    return _run(runtime, source, result, step, name, lambda: to_device_of(tensor)(result))


def _prepare_neighbor_allreduce_(
        tensor: torch.Tensor, *, self_weight: float | None = None,
        src_weights: Mapping[int, float] | None = None, dst_weights: DstWeights | None = None,
        enable_topo_check: bool = True, name: str | None = None,
        synchronisation: str = "auto") -> PreparedCall:
    """The call with these arguments, to be made many times."""
    call = "neighbor_allreduce_.prepare"
    runtime = current()
    if name is not None:
        checked(call, "name", _arguments.name, name)
    checked(call, "synchronisation", _arguments.synchronisation, synchronisation)
    try:
        check_writable(tensor)
    except Exception as error:
        raise runtime.placed(call, error) from None
    src, dst = copy.copy(src_weights), copy.copy(dst_weights)
    return PreparedCall(
        tensor, name, synchronisation,
        lambda is_of_call: _plans.neighbor_plan(runtime, self_weight, src, dst, enable_topo_check,
                                                is_of_call),
        is_dynamic=dst_weights is not None)


@prepared_by(_prepare_neighbor_allreduce_, **_NEW_NAMES)
@renamed(**_NEW_NAMES)
@ranged
def neighbor_allreduce_(tensor: torch.Tensor, *, self_weight: float | None = None,
                        src_weights: Mapping[int, float] | None = None,
                        dst_weights: DstWeights | None = None, enable_topo_check: bool = True,
                        name: str | None = None, synchronisation: str = "auto") -> torch.Tensor:
    """`neighbor_allreduce` in place: no memory is needed for the result.

    synchronisation: whom this rank waits for where the tensor lies in memory that ranks share
        (`bf.shared_zeros`): "component", all ranks that the step ties together; "neighbours", those
        it hears alone, by messages; "auto", as long as it costs less the first, or what
        BLUEFOG_SYNCHRONISATION says. Each rank may choose for itself: all go by messages where one
        wants to. A rank that begins this call only after another has returned from its own needs
        "neighbours" there.

    For a tensor that is averaged many times `neighbor_allreduce_.prepare` takes the same arguments
    and returns the call: after `call = bf.neighbor_allreduce_.prepare(x)` each `call()` averages x
    as it is then, and returns it, without the time that Python takes for the arguments. It follows
    `set_topology` and new memory of the tensor (`x.data = …`; what it had before is let go at the
    next call). To prepare is no call of ranks: it
    communicates nothing, and what is wrong with the arguments it raises on this rank alone.
    """
    runtime = current()
    source = runtime.source("neighbor_allreduce", tensor, name, elements_to_write)
    _check_synchronisation(runtime, "neighbor_allreduce", synchronisation)
    step = _neighbor_step(runtime, self_weight, src_weights, dst_weights, enable_topo_check)
    return _run(runtime, source, source, step, name, lambda: store(source, tensor),
                synchronisation)


@renamed(**_NEW_NAMES)
@ranged
def neighbor_allreduce_nonblocking(tensor: torch.Tensor, *, self_weight: float | None = None,
                                   src_weights: Mapping[int, float] | None = None,
                                   dst_weights: DstWeights | None = None,
                                   enable_topo_check: bool = True,
                                   name: str | None = None) -> int:
    """Starts `neighbor_allreduce`; the tensor may not change until its handle was waited for."""
    runtime = current()
    source = runtime.source("neighbor_allreduce", tensor, name, elements)
    step = _neighbor_step(runtime, self_weight, src_weights, dst_weights, enable_topo_check)
    result = runtime.result_like(source)
    work = step.run(lambda: core.start_neighbor_allreduce(runtime.context, source, result,
                                                          step.plan,
                                                          step.checked, name or ""))
    finish = to_device_of(tensor)
    return runtime.add(work, lambda _: finish(result), step.failed)


@renamed(**_NEW_NAMES)
@ranged
def neighbor_allreduce_nonblocking_(tensor: torch.Tensor, *, self_weight: float | None = None,
                                    src_weights: Mapping[int, float] | None = None,
                                    dst_weights: DstWeights | None = None,
                                    enable_topo_check: bool = True, name: str | None = None,
                                    synchronisation: str = "auto") -> int:
    """Starts `neighbor_allreduce_`."""
    runtime = current()
    source = runtime.source("neighbor_allreduce", tensor, name, elements_to_write)
    _check_synchronisation(runtime, "neighbor_allreduce", synchronisation)
    step = _neighbor_step(runtime, self_weight, src_weights, dst_weights, enable_topo_check)
    work = step.run(lambda: core.start_neighbor_allreduce(
        runtime.context, source, source, step.plan, step.checked, name or "", synchronisation))
    return runtime.add(work, lambda _: store(source, tensor), step.failed,
                       range_of(source))


def _neighbor_step(runtime: Runtime, *arguments: Any) -> _plans.Step:
    return runtime.or_refuse(lambda: _plans.neighbor_plan(runtime, *arguments))


def _check_synchronisation(runtime: Runtime, call: str, synchronisation: str) -> None:
    if synchronisation != "auto":
        runtime.argument(call, "synchronisation", _arguments.synchronisation, synchronisation)


def _run(runtime: Runtime, source: torch.Tensor, result: torch.Tensor, step: _plans.Step,
         name: str | None, finish: Callable[[], torch.Tensor],
         synchronisation: str = "auto") -> torch.Tensor:
    try:
        step.run(lambda: core.neighbor_allreduce(runtime.context, source, result, step.plan,
                                                 step.checked, name or "", synchronisation))
    except LateMismatchError as error:  # the call itself has done its work
        error.result = finish()
        raise
    return finish()


@renamed(**_NEW_NAMES)
@ranged
def neighbor_allreduce_multi_(tensors: Iterable[torch.Tensor], *, self_weight: float | None = None,
                              src_weights: Mapping[int, float] | None = None,
                              dst_weights: DstWeights | None = None,
                              enable_topo_check: bool = True, name: str | None = None,
                              synchronisation: str = "auto") -> list[torch.Tensor]:
    """`neighbor_allreduce_` of many tensors at once, with the same bits as one by one: those of a
    dtype are averaged as if they lay one after the other, in pieces of 512 KiB.

    tensors: their number, shapes and dtypes, in this order, the same on all ranks, which is
        compared; apart from each other. Those on a device are averaged one by one.
    Returns the tensors.
    Cost: that of `neighbor_allreduce_` of all elements, and two copies of tensors that do not lie
    one after the other.
    Raises as `neighbor_allreduce_`, and InvalidArgument for tensors that overlap. A failure may
    leave some averaged; a rank whose list differs from that of one it hears changes none.
    """
    call = "neighbor_allreduce_multi_"
    runtime = current()
    given = runtime.argument(call, "tensors", _arguments.list_of_tensors, tensors)
    sources = _sources(runtime, call, given, name)
    _check_synchronisation(runtime, call, synchronisation)
    shapes = hash(tuple(source.shape for source in sources)) & 0xffffffff
    step = _neighbor_step(runtime, self_weight, src_weights, dst_weights, enable_topo_check)
    label = f"{name or ''} shapes {shapes:08x}".lstrip()
    on_device = [source for source in sources if not source.is_cpu] if sources is not given else []
    on_cpu = [source for source in sources if source.is_cpu] if on_device else sources

    def run() -> None:
        core.neighbor_allreduce_multi(runtime.context, on_cpu, step.plan, step.checked, label,
                                      synchronisation)
        for source in on_device:
            core.neighbor_allreduce(runtime.context, source, source, step.plan, step.checked,
                                    name or "", synchronisation)

    def finish() -> list[torch.Tensor]:
        for source, tensor in zip(sources, given) if sources is not given else ():
            if source is not tensor:
                store(source, tensor)
        return given

    try:
        step.run(run)
    except LateMismatchError as error:  # the call itself has done its work
        error.result = finish()
        raise
    return finish()


def _sources(runtime: Runtime, call: str, tensors: list[torch.Tensor],
             name: str | None) -> list[torch.Tensor]:
    """`Runtime.source` of each; an error says which it is."""
    if name is not None:
        runtime.argument(call, "name", _arguments.name, name)
    plain = runtime.or_refuse(lambda: all_to_write(tensors))
    if plain is not None:
        return plain
    sources = [runtime.source(f"{call}, tensors[{place}]", tensor, name, elements_to_write)
               for place, tensor in enumerate(tensors)]
    runtime.argument(call, "tensors", check_apart, tensors)
    return sources


# ---- hierarchical_neighbor_allreduce


@renamed(**_NEW_MACHINE_NAMES)
@ranged
def hierarchical_neighbor_allreduce(tensor: torch.Tensor, *, self_weight: float | None = None,
                                    src_machine_weights: Mapping[int, float] | None = None,
                                    dst_machine_weights: DstWeights | None = None,
                                    enable_topo_check: bool = False,
                                    name: str | None = None) -> torch.Tensor:
    """The average inside each machine, then the weighted average between machines, by machine rank:

        y_m = mean of x over machine m
        result = self_weight y_m + Σ_k src_machine_weights[k] dst_machine_weights_k[m] y_k

    Every rank of a machine gets the same bits. All three weights or none; without them the machine
    topology's (`set_machine_topology`), and StateError where none is set.

    enable_topo_check: as for `neighbor_allreduce`, where weights are given.
    Cost on machines of L ranks: 2 (L - 1) / L of the tensor inside the machine, and 1 / L of it to
    each machine that this one sends to.
    Raises InvalidArgument for some of the weights without the others, and machines that are none.
    """
    runtime = current()
    return runtime.wait(_start_hierarchical(runtime, tensor, self_weight, src_machine_weights,
                                            dst_machine_weights, enable_topo_check, name))


@renamed(**_NEW_MACHINE_NAMES)
@ranged
def hierarchical_neighbor_allreduce_nonblocking(
        tensor: torch.Tensor, *, self_weight: float | None = None,
        src_machine_weights: Mapping[int, float] | None = None,
        dst_machine_weights: DstWeights | None = None, enable_topo_check: bool = False,
        name: str | None = None) -> int:
    """Starts `hierarchical_neighbor_allreduce`."""
    return _start_hierarchical(current(), tensor, self_weight, src_machine_weights,
                               dst_machine_weights, enable_topo_check, name)


def _start_hierarchical(runtime: Runtime, tensor: torch.Tensor, self_weight: Any, src: Any,
                        dst: Any, enable_topo_check: Any, name: str | None) -> int:
    result = runtime.source("hierarchical_neighbor_allreduce", tensor, name, copied)
    step = runtime.or_refuse(
        lambda: _plans.machine_plan(runtime, self_weight, src, dst, enable_topo_check))
    work = step.run(lambda: core.start_hierarchical_neighbor_allreduce(
        runtime.context, result, step.plan, step.checked, name or ""))
    finish = to_device_of(tensor)
    return runtime.add(work, lambda _: finish(result), step.failed)


# ---- neighbor_allgather


@ranged
def neighbor_allgather(tensor: torch.Tensor, *, src_ranks: Sequence[int] | None = None,
                       dst_ranks: Sequence[int] | None = None, enable_topo_check: bool = True,
                       name: str | None = None) -> torch.Tensor:
    """An `allgather` over the in-neighbours of the topology, by rising rank and without this
    rank's own; or over `src_ranks`, in their order, where `dst_ranks` says whom this rank sends to.
    A rank that is in both of its lists has its own tensor there too.

    enable_topo_check: as for `neighbor_allreduce`, where ranks are given.
    Cost: to each out-neighbour one message of 8 bytes and one of the tensor.
    Raises InvalidArgument for one of the lists without the other, and ranks that are none.
    """
    return wait(neighbor_allgather_nonblocking(tensor, src_ranks=src_ranks, dst_ranks=dst_ranks,
                                               enable_topo_check=enable_topo_check, name=name))


@ranged
def neighbor_allgather_nonblocking(tensor: torch.Tensor, *,
                                   src_ranks: Sequence[int] | None = None,
                                   dst_ranks: Sequence[int] | None = None,
                                   enable_topo_check: bool = True,
                                   name: str | None = None) -> int:
    """Starts `neighbor_allgather`."""
    runtime = current()
    source = runtime.source("neighbor_allgather", tensor, name, elements)
    step, order = runtime.or_refuse(
        lambda: _plans.gather_plan(runtime, src_ranks, dst_ranks, enable_topo_check))
    work = step.run(lambda: core.start_neighbor_allgather(runtime.context, source, step.plan,
                                                          step.checked, name or "", order))
    return runtime.add(work, to_device_of(tensor), step.failed)


# ---- pair_gossip


@ranged
def pair_gossip(tensor: torch.Tensor, target_rank: int, self_weight: float | None = None,
                pair_weight: float | None = None, name: str | None = None) -> torch.Tensor:
    """self_weight x + pair_weight x_target, between two ranks that call it with each other as the
    target; other ranks have no part in it. Both weights, or neither for the average. In order with
    the two ranks' other calls of it alone.

    Cost: one message of the tensor.
    Raises InvalidArgument for a target that is no other rank, one weight without the other, or one
    that is not finite; TimeoutError where the target does not come.
    Source: AD-PSGD, arXiv 1710.06952.
    """
    return wait(pair_gossip_nonblocking(tensor, target_rank, self_weight, pair_weight, name))


@ranged
def pair_gossip_nonblocking(tensor: torch.Tensor, target_rank: int,
                            self_weight: float | None = None,
                            pair_weight: float | None = None, name: str | None = None) -> int:
    """Starts `pair_gossip`."""
    runtime = current()
    partner = _partner(runtime, target_rank)
    weights = runtime.or_refuse(lambda: _pair_weights(runtime, self_weight, pair_weight), partner)
    source = runtime.source("pair_gossip", tensor, name, elements, partner=partner)
    result = runtime.result_like(source, partner)
    work = core.start_pair_gossip(runtime.context, source, result, partner, *weights, name or "")
    finish = to_device_of(tensor)
    return runtime.add(work, lambda _: finish(result))


def _partner(runtime: Runtime, target_rank: int) -> int:
    """The other rank of the call; where it is none, there is nobody to tell of a refusal."""
    target = checked("pair_gossip", "target_rank", _arguments.rank(runtime.size), target_rank)
    if target == runtime.rank:
        raise InvalidArgument(
            f"rank {runtime.rank}, pair_gossip: target_rank: expected another rank than "
            f"{target}")
    return target


def _pair_weights(runtime: Runtime, self_weight: float | None,
                  pair_weight: float | None) -> tuple[float, float]:
    own = checked("pair_gossip", "self_weight", _arguments.weight, self_weight)
    theirs = checked("pair_gossip", "pair_weight", _arguments.weight, pair_weight)
    if own is None and theirs is None:
        return 0.5, 0.5
    if own is None or theirs is None:
        raise InvalidArgument(
            f"rank {runtime.rank}, pair_gossip: expected self_weight and pair_weight "
            f"together, or neither, found no {'self' if own is None else 'pair'}_weight")
    return own, theirs
