"""Parameters and optimizer state of all ranks at once."""

from typing import Iterable, Iterator, List, Mapping, Tuple, Union

import torch

from bluefog_cpp._extension import core
from bluefog_cpp.errors import InvalidArgument
from bluefog_cpp.torch._devices import take_device_of
from bluefog_cpp.torch._ranges import ranged
from bluefog_cpp.torch._runtime import current
from bluefog_cpp.torch._state import broadcast_state
from bluefog_cpp.torch._tensors import check_sendable

Parameters = Union[Mapping[str, torch.Tensor], Iterable[torch.Tensor],
                   Iterable[Tuple[str, torch.Tensor]]]


@ranged
def broadcast_parameters(params: Parameters, root_rank: int) -> None:
    """Collective. Every rank's tensors become the root's: before training, so that all start from
    the same model.

    params: a state dict, `model.named_parameters()`, or tensors. All in flight together.
    Raises MismatchError naming the first tensor whose name, dtype or shape differs between ranks;
    where a rank has something else than dense tensors of real numbers InvalidArgument, and PeerFailure
    on the others. Nothing is sent then.
    """
    runtime = current()
    runtime.drain_optimizers()
    tensors = _agreed("broadcast_parameters", params, f"root {root_rank}")
    core.broadcast_tensors(runtime.context, tensors, root_rank)


@ranged
def allreduce_parameters(params: Parameters) -> None:
    """Collective. Every floating-point tensor becomes its mean over all ranks; those of integers are
    left alone. Errors as of `broadcast_parameters`."""
    runtime = current()
    runtime.drain_optimizers()
    core.average_tensors(runtime.context, _agreed("allreduce_parameters", params))


@ranged
def broadcast_optimizer_state(optimizer: torch.optim.Optimizer, root_rank: int) -> None:
    """Collective. The options of every group and the state of every parameter become the root's,
    also where a rank has no state yet."""
    runtime = current()
    runtime.drain_optimizers()
    received = broadcast_state(optimizer.state_dict(), root_rank)
    if runtime.rank != root_rank:
        optimizer.load_state_dict(received)


def _agreed(call: str, params: Parameters, *arguments: str) -> List[Tuple[str, torch.Tensor]]:
    """The tensors with their names, the same on all ranks. Ranks would else make different numbers of
    calls."""
    named: List[Tuple[str, torch.Tensor]] = []
    lines, problem = list(arguments), ""
    try:
        for name, tensor in _named(params):
            try:
                check_sendable(tensor)
            except Exception as error:
                raise InvalidArgument(f"'{name}': {error}") from None
            named.append((name, tensor))
            lines.append(f"'{name}', {str(tensor.dtype).replace('torch.', '')}{list(tensor.shape)}"
                         + ("" if tensor.is_cpu else f" on {tensor.device.type}"))
    except Exception as error:
        problem = str(error) or type(error).__name__
    context = current().context
    core.check_ranks_agree(context, call, lines, problem)
    take_device_of(context, (tensor for _, tensor in named))
    return named


def _named(params: Parameters) -> Iterator[Tuple[str, torch.Tensor]]:
    items = list(params.items() if isinstance(params, Mapping) else params)
    for place, item in enumerate(items):
        name, tensor = item if isinstance(item, tuple) and len(item) == 2 else (str(place), item)
        if isinstance(tensor, torch.Tensor):
            yield str(name), tensor
        elif not isinstance(params, Mapping):  # state dicts may hold other things
            raise InvalidArgument("expected torch.Tensors, or pairs of name and torch.Tensor, found "
                                  f"{type(tensor).__name__} in {item!r}")
