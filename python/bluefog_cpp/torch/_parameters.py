"""Parameters and optimizer state of all ranks at once."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch

from bluefog_cpp import _arguments
from bluefog_cpp._extension import core
from bluefog_cpp.errors import ArgumentTypeError, Error, InvalidArgument
from bluefog_cpp.torch._devices import take_device_of
from bluefog_cpp.torch._ranges import ranged
from bluefog_cpp.torch._runtime import current
from bluefog_cpp.torch._state import broadcast_state, check_agreed, root
from bluefog_cpp.torch._tensors import check_writable
from bluefog_cpp.torch._wrapped.carried_state import CARRIED, take_over_counts, without_tensors

Parameters = (Mapping[str, torch.Tensor] | Iterable[torch.Tensor]
              | Iterable[tuple[str, torch.Tensor]])


@ranged
def broadcast_parameters(params: Parameters, root_rank: int) -> None:
    """Collective. Every rank's tensors become the root's: before training, so that all start from
    the same model.

    params: a state dict, `model.named_parameters()`, or tensors, of any dtype that is sent. All in
    flight together. Cost: one `broadcast` for each tensor.
    Raises MismatchError naming the first tensor whose name, dtype or shape differs between ranks;
    where a rank has something else than dense tensors of real numbers InvalidArgument, and
    PeerFailure on the others. Nothing is sent then.
    """
    runtime = current()
    runtime.drain_optimizers()
    call = "broadcast_parameters"
    tensors = _agreed(call, params, lambda: f"root {root(runtime.size, root_rank)}")
    core.broadcast_tensors(runtime.context, tensors, int(root_rank), call)


@ranged
def allreduce_parameters(params: Parameters) -> None:
    """Collective. Every floating-point tensor becomes its mean over all ranks, x ← (1/n) Σ_j x_j,
    the same bits on each; those of integers are left alone: one model for all, at the end of
    training. Cost: one `allreduce` for each tensor. Errors as of `broadcast_parameters`."""
    runtime = current()
    runtime.drain_optimizers()
    call = "allreduce_parameters"
    core.average_tensors(runtime.context, _agreed(call, params, lambda: "averages"), call)


@ranged
def broadcast_optimizer_state(optimizer: torch.optim.Optimizer, root_rank: int) -> None:
    """Collective. The options of every group and the state of every parameter become the root's,
    also where a rank has no state yet. Dtypes are the root's too, and the counts of steps and
    rounds of a wrapped optimizer, so that a checkpoint that the root alone has loaded goes on
    everywhere. Tensors that its algorithm carries (corrections, outer models) stay each rank's own,
    or begin anew on all ranks (`restart`), with a warning, where their counts were apart.
    Nothing that is received is executed: it travels as JSON and tensors. Cost: one `allgather` of
    the outline, one of a byte, and one `broadcast` for each tensor of state.

    Raises MismatchError where the ranks' optimizers are of different classes, or have other groups,
    parameters of other shapes or, if wrapped, other names in their order; InvalidArgument for
    another argument, and for state of the root that is no tensor, number or text, by its key;
    PeerFailure on the other ranks. Nothing is changed then."""
    current().drain_optimizers()
    counts = take_over_state("broadcast_optimizer_state", optimizer, root_rank)
    distributed = getattr(optimizer, "_distributed", None)
    if counts is not None:
        algorithm = None if distributed is None or distributed.has_ended else distributed.core
        take_over_counts("broadcast_optimizer_state", current().context, algorithm, counts)


def take_over_state(call: str, optimizer: torch.optim.Optimizer, root_rank: int,
                    keeps: bool = False) -> dict[str, Any] | None:
    """`broadcast_optimizer_state`, as a part of `call`, but for the counts of the root's wrapped
    optimizer, which it returns; None of a plain one. keeps: whether this rank takes part alone, and
    keeps its own."""
    received = broadcast_state(call,
                               # Peers are told where there is no such method.
                               lambda: without_tensors(optimizer.state_dict()),
                               lambda: described_lines(optimizer), root_rank)
    counts: dict[str, Any] | None = received.pop(CARRIED, None)
    if current().rank != root_rank and not keeps:
        optimizer.load_state_dict(received)
        _take_over_dtypes(optimizer, received)
    return counts


def _take_over_dtypes(optimizer: torch.optim.Optimizer, received: Mapping[str, Any]) -> None:
    """torch's `load_state_dict` has cast state to the dtype of its parameter."""
    places = [place for group in received["param_groups"] for place in group["params"]]
    parameters = [each for group in optimizer.param_groups for each in group["params"]]
    for place, parameter in zip(places, parameters):
        if place in received["state"] and parameter in optimizer.state:
            optimizer.state[parameter] = _with_dtypes(optimizer.state[parameter],
                                                      received["state"][place])


def _with_dtypes(loaded: Any, sent: Any) -> Any:
    """`loaded`, with the tensors of `sent` where they have another dtype."""
    if isinstance(loaded, torch.Tensor) and isinstance(sent, torch.Tensor):
        return loaded if loaded.dtype == sent.dtype else sent.to(loaded.device)
    if type(loaded) is dict and isinstance(sent, Mapping):
        return {key: _with_dtypes(value, sent.get(key)) for key, value in loaded.items()}
    if type(loaded) in (list, tuple) and isinstance(sent, (list, tuple)):
        return type(loaded)(map(_with_dtypes, loaded, sent))
    return loaded


def described_lines(optimizer: torch.optim.Optimizer) -> list[str]:
    """Its class and groups, and the parameters in the order by which their state is told apart."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise ArgumentTypeError("optimizer: expected a torch.optim.Optimizer, found "
                                f"{_arguments.described(optimizer)}")
    sizes = ", ".join(str(len(group["params"])) for group in optimizer.param_groups)
    distributed = getattr(optimizer, "_distributed", None)
    names = {} if distributed is None else distributed.names
    return [f"{type(optimizer).__name__} with groups of {sizes} parameters",
            *(f"parameter {place} of group {number}"
              f"{f', {names[id(each)]}' if id(each) in names else ''}, of {list(each.shape)}"
              for number, group in enumerate(optimizer.param_groups)
              for place, each in enumerate(group["params"]))]


def _agreed(call: str, params: Parameters,
            statement: Callable[[], str]) -> list[tuple[str, torch.Tensor]]:
    """The tensors with their names, the same on all ranks. Ranks would else make different numbers
    of calls."""
    named: list[tuple[str, torch.Tensor]] = []
    lines: list[str] = []
    problem: Exception | None = None
    try:
        lines.append(statement())
        for name, tensor in _named(params):
            try:
                check_writable(tensor)
            except Exception as error:
                kind = type(error) if isinstance(error, Error) else InvalidArgument
                raise kind(f"'{name}': {error}") from None
            named.append((name, tensor))
            lines.append(f"'{name}', {str(tensor.dtype).replace('torch.', '')}{list(tensor.shape)}"
                         + ("" if tensor.is_cpu else f" on {tensor.device.type}"))
    except Exception as error:
        problem = error
    check_agreed(call, lines, problem)
    take_device_of(current().context, (tensor for _, tensor in named))
    return named


def _named(params: Parameters) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(params, (str, bytes, torch.Tensor, torch.nn.Module)) or not isinstance(params,
                                                                                         Iterable):
        hint = "; pass its state_dict()" if isinstance(params, torch.nn.Module) else ""
        raise ArgumentTypeError(
            "params: expected a state dict, tensors, or pairs of name and tensor, "
            f"found {_arguments.described(params)}{hint}")
    items = list(params.items() if isinstance(params, Mapping) else params)
    for place, item in enumerate(items):
        name, tensor = item if isinstance(item, tuple) and len(item) == 2 else (str(place), item)
        if isinstance(tensor, torch.Tensor):
            yield _arguments.utf8(str(name)), tensor
        elif not isinstance(params, Mapping):  # state dicts may hold other things
            raise ArgumentTypeError(
                "params: expected torch.Tensors, or pairs of name and torch.Tensor, found "
              f"{type(tensor).__name__} in {item!r}")
