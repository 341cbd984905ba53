"""State of a program's own objects, schedulers say, for ranks that join."""

import collections
from typing import Any

import torch

from bluefog_cpp._arguments import checked, described
from bluefog_cpp.errors import ArgumentTypeError
from bluefog_cpp.torch._runtime import Runtime, current
from bluefog_cpp.torch._state import broadcast_state


def hand_to_newcomers(stateful: Any) -> None:
    """Local. Ranks that join take over the state of this object, that of a learning rate scheduler
    for instance, from rank 0: at the meeting in which they join, and once more at the begin of the
    step behind it, when rank 0 has done what its loop does behind a step (`scheduler.step()`).

        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)
        bf.hand_to_newcomers(scheduler)

    stateful: has `state_dict()`, of tensors, numbers, text and None in dicts, lists and tuples, and
    `load_state_dict(state)`. It is kept as long as the program keeps it. All ranks, those that join
    among them, name as many, of the same classes in the same order. On one rank, and where nobody
    joins, it does nothing. Raises ArgumentTypeError for another object.
    """
    current().handed.add(checked("hand_to_newcomers", "stateful", _stateful, stateful))


def _stateful(value: Any) -> Any:
    methods = ("state_dict", "load_state_dict")
    if isinstance(value, type) or not all(callable(getattr(value, each, None)) for each in methods):
        raise ArgumentTypeError(
            f"expected an object with state_dict() and load_state_dict(), found {described(value)}")
    return value


def hand_over(runtime: Runtime, optimizers: list[Any]) -> None:
    """Collective. Ranks that have joined last take over the options of the groups of `optimizers`,
    learning rates among them, and what `hand_to_newcomers` was told."""
    owners = runtime.handed.owners()
    plain = [each.wrapped for each in optimizers]
    received = broadcast_state(
        "hand_to_newcomers",
        lambda: {"options": [[_options(group) for group in each.param_groups] for each in plain],
                 "owners": [each.state_dict() for each in owners]},
        lambda: [f"states of {', '.join(runtime.handed.names()) or 'nothing'}"], 0)
    if not runtime.handed.takes:
        return
    for optimizer, groups in zip(plain, received["options"]):
        for group, options in zip(optimizer.param_groups, groups):
            for name, value in options.items():
                _set(group, name, value)
    for owner, state in zip(owners, received["owners"]):
        owner.load_state_dict(_as_own(state, owner.state_dict()))


def hand_over_again() -> None:
    """`hand_over`, at the begin of the first step behind the meeting."""
    runtime = current()
    hand_over(runtime, [each for each in runtime.optimizers_in_order() if not each.has_ended])
    runtime.handed.is_due = False


def _options(group: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in group.items() if name != "params"}


def _set(group: dict[str, Any], name: str, value: Any) -> None:
    own = group.get(name)
    if isinstance(own, torch.Tensor) and isinstance(value, torch.Tensor):
        own.detach().copy_(value)  # who has captured it goes on with it
    else:
        group[name] = value


def _as_own(received: Any, own: Any) -> Any:
    """The state in the classes of the rank's own: dicts of a class of their own travel as dicts."""
    if isinstance(own, dict) and isinstance(received, dict):
        entries = {key: _as_own(value, own.get(key)) for key, value in received.items()}
        return collections.Counter(entries) if isinstance(own, collections.Counter) else entries
    return received
