"""Operations that ranks call together. Without `_nonblocking` they return when the result is there;
with it they return a handle for `poll`, `synchronize` and `wait`. Names that end in `_` write into
their argument, the others return a new tensor.

All ranks make the same calls in the same order. `name` appears in messages and in the timeline, and
the ranks' names are compared. Tensors are dense; float16, bfloat16, float32 and float64 where
something is averaged. Results have the dtype and the device of the argument, and its shape unless
said otherwise. Gradients do not flow through. Costs are per rank, of n ranks.

All raise NotInitialized before `init`; InvalidArgument, ArgumentTypeError or UnsupportedError for
an argument of this rank, before anything is sent, and PeerFailure on the ranks that wait for it;
MismatchError where ranks make different calls, or the same one with other shapes or dtypes;
PeerFailure where a rank has left or died; TimeoutError after `BLUEFOG_TIMEOUT`. Calls that were
started raise the last three where they are waited for. Source: BlueFog's functions of these names.
"""

from collections.abc import Callable
from typing import Any

import torch

from bluefog_cpp import _arguments
from bluefog_cpp._extension import core
from bluefog_cpp.torch._ranges import ranged
from bluefog_cpp.torch._runtime import current
from bluefog_cpp.torch._tensors import (
    copied,
    elements,
    elements_to_write,
    into,
    range_of,
    to_device_of,
)

Start = Callable[[core.Context, torch.Tensor, str, bool], core.Work]


# ---- handles


def poll(handle: int) -> bool:
    """Whether the call is complete; never blocks. The handle stays: its result is kept until
    somebody waits for it. Raises InvalidArgument for an unknown handle."""
    return current().is_done(handle)


@ranged
def synchronize(handle: int) -> torch.Tensor | Any:
    """Blocks until the call is complete and returns its result. The handle is used up.

    Raises what went wrong in the call, and InvalidArgument for an unknown handle.
    """
    return current().wait(handle)


wait = synchronize


# ---- allreduce


@ranged
def allreduce(tensor: torch.Tensor, average: bool = True, is_hierarchical_local: bool = False,
              name: str | None = None) -> torch.Tensor:
    """The average over all ranks, or the sum: the same bits on each. The average of equal values is
    exactly that value.

        result = (1/n) Σ_j x_j, or Σ_j x_j where not average

    is_hierarchical_local: over the ranks of each machine for itself; all ranks call it all the
    same. Sums take every dtype but bool, and those of integers wrap around.
    Cost: 2 (n - 1) / n of the tensor in 2 (n - 1) messages; up to 4 KiB, and of two ranks, n - 1
    messages of the whole.
    """
    return wait(allreduce_nonblocking(tensor, average, is_hierarchical_local, name))


@ranged
def allreduce_nonblocking(tensor: torch.Tensor, average: bool = True,
                          is_hierarchical_local: bool = False, name: str | None = None) -> int:
    """Starts `allreduce`."""
    return _start_in_place("allreduce", copied, tensor, to_device_of,
                           _allreduce(average, is_hierarchical_local), name)


@ranged
def allreduce_(tensor: torch.Tensor, average: bool = True, is_hierarchical_local: bool = False,
               name: str | None = None) -> torch.Tensor:
    """`allreduce` in place."""
    return wait(allreduce_nonblocking_(tensor, average, is_hierarchical_local, name))


@ranged
def allreduce_nonblocking_(tensor: torch.Tensor, average: bool = True,
                           is_hierarchical_local: bool = False, name: str | None = None) -> int:
    """Starts `allreduce_`."""
    return _start_in_place("allreduce", elements_to_write, tensor, into,
                           _allreduce(average, is_hierarchical_local), name)


def _allreduce(average: bool, in_machine: bool) -> Start:
    runtime = current()
    average = runtime.argument("allreduce", "average", _arguments.switch, average)
    in_machine = runtime.argument("allreduce", "is_hierarchical_local", _arguments.switch,
                                  in_machine)
    return lambda context, buffer, name, is_copy: core.start_allreduce(
        context, buffer, average, in_machine, name, is_copy)


# ---- broadcast


@ranged
def broadcast(tensor: torch.Tensor, root_rank: int, name: str | None = None) -> torch.Tensor:
    """The root's tensor, on every rank. Any dtype, the same shape everywhere.

    Cost: one message of the tensor to each rank that a rank passes it on to, along a binomial tree
    over hosts; the ranks of a host read one copy.
    Raises InvalidArgument for a root that is no rank, MismatchError where ranks name several.
    """
    return wait(broadcast_nonblocking(tensor, root_rank, name))


@ranged
def broadcast_nonblocking(tensor: torch.Tensor, root_rank: int, name: str | None = None) -> int:
    """Starts `broadcast`."""
    return _start_in_place("broadcast", copied, tensor, to_device_of, _broadcast(root_rank), name)


@ranged
def broadcast_(tensor: torch.Tensor, root_rank: int, name: str | None = None) -> torch.Tensor:
    """`broadcast` in place."""
    return wait(broadcast_nonblocking_(tensor, root_rank, name))


@ranged
def broadcast_nonblocking_(tensor: torch.Tensor, root_rank: int, name: str | None = None) -> int:
    """Starts `broadcast_`."""
    return _start_in_place("broadcast", elements_to_write, tensor, into, _broadcast(root_rank),
                           name)


def _broadcast(root_rank: int) -> Start:
    runtime = current()
    root = runtime.argument("broadcast", "root_rank", _arguments.rank(runtime.size), root_rank)
    return lambda context, buffer, name, is_copy: core.start_broadcast(context, buffer, root, name,
                                                                       is_copy)


def _start_in_place(call: str, take: Callable[[torch.Tensor], torch.Tensor], tensor: torch.Tensor,
                    ending: Callable[[torch.Tensor], Callable[[torch.Tensor], torch.Tensor]],
                    start: Start, name: str | None) -> int:
    runtime = current()
    buffer = runtime.source(call, tensor, name, take)
    work = start(runtime.context, buffer, name or "", ending is to_device_of)
    finish = ending(tensor)
    return runtime.add(work, lambda _: finish(buffer), writes=range_of(buffer))


# ---- allgather


@ranged
def allgather(tensor: torch.Tensor, name: str | None = None) -> torch.Tensor:
    """The ranks' tensors one after the other along dimension 0, by rank: of shape [n_0, …] to
    [n_k, …] one of shape [Σ_j n_j, …]. Any dtype. Their first dimension may differ, the others not.
    A 0-d tensor counts as one of one element.

    Cost: n - 1 messages of 8 bytes, then n - 1 of the tensor.
    """
    return wait(allgather_nonblocking(tensor, name))


@ranged
def allgather_nonblocking(tensor: torch.Tensor, name: str | None = None) -> int:
    """Starts `allgather`."""
    runtime = current()
    source = runtime.source("allgather", tensor, name, elements)
    work = core.start_allgather(runtime.context, source, name or "")
    return runtime.add(work, to_device_of(tensor))


# ---- barrier


@ranged
def barrier() -> None:
    """Returns when every rank has entered it. Cost: ⌈log₂ n⌉ messages."""
    core.barrier(current().context)
