"""Parameters and optimizer state of all ranks at once."""

from typing import Iterable, List, Mapping, Tuple, Union

import torch

from bluefog_cpp._extension import core
from bluefog_cpp.errors import InvalidArgument
from bluefog_cpp.torch._ranges import ranged
from bluefog_cpp.torch._runtime import current
from bluefog_cpp.torch._state import broadcast_state

Parameters = Union[Mapping[str, torch.Tensor], Iterable[torch.Tensor],
                   Iterable[Tuple[str, torch.Tensor]]]


@ranged
def broadcast_parameters(params: Parameters, root_rank: int) -> None:
    """Collective. Every rank's tensors become the root's: before training, so that all start from
    the same model.

    params: a state dict, `model.named_parameters()`, or tensors. All in flight together.
    Raises MismatchError naming the first tensor whose name or shape differs between ranks.
    """
    runtime = current()
    runtime.drain_optimizers()
    core.broadcast_tensors(runtime.context, _named(params), root_rank)


@ranged
def allreduce_parameters(params: Parameters) -> None:
    """Collective. Every floating-point tensor becomes its mean over all ranks; others are left alone."""
    runtime = current()
    runtime.drain_optimizers()
    core.average_tensors(runtime.context, _named(params))


@ranged
def broadcast_optimizer_state(optimizer: torch.optim.Optimizer, root_rank: int) -> None:
    """Collective. The options of every group and the state of every parameter become the root's,
    also where a rank has no state yet."""
    runtime = current()
    runtime.drain_optimizers()
    received = broadcast_state(optimizer.state_dict(), root_rank)
    if runtime.rank != root_rank:
        optimizer.load_state_dict(received)


def _named(params: Parameters) -> List[Tuple[str, torch.Tensor]]:
    items = list(params.items() if isinstance(params, Mapping) else params)
    named = []
    for place, item in enumerate(items):
        name, tensor = item if isinstance(item, tuple) else (str(place), item)
        if isinstance(tensor, torch.Tensor):
            named.append((str(name), tensor))
        elif not isinstance(params, Mapping):  # state dicts may hold other things
            raise InvalidArgument(f"expected tensors or pairs of name and tensor, found {item!r}")
    return named
