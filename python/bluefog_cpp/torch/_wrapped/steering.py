"""Attributes of wrapped optimizers that steer their next steps: checked when they are set, so that
a slip of the pen does not train another algorithm."""

import difflib
from collections.abc import Callable
from typing import Any

from bluefog_cpp import _arguments
from bluefog_cpp.errors import InvalidArgument
from bluefog_cpp.torch._runtime import current

ATTRIBUTES: set[str] = {"num_steps_per_communication", "communication_type"}
"""Names that some wrapped optimizer knows."""


class Steering:
    """An attribute with a default; `check` raises InvalidArgument for a value that it cannot
    have."""

    def __init__(self, default: Any, check: Callable[[Any], Any]):
        self._default = default
        self._check = check
        self._name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name
        ATTRIBUTES.add(name)

    def __get__(self, instance: Any | None, owner: type | None = None) -> Any:
        return self._default if instance is None else instance.__dict__.get(self._name,
                                                                            self._default)

    def __set__(self, instance: Any, value: Any) -> None:
        try:
            self._check(value)
        except InvalidArgument as error:
            raise type(error)(f"{instance._label}, {self._name}: {error}") from None
        instance.__dict__[self._name] = value


def check_name(optimizer: Any, name: str) -> None:
    """Raises InvalidArgument for the name of an attribute that only other optimizers know, or that
    is nearly one of those."""
    if name.startswith("_") or name in optimizer.__dict__ or hasattr(type(optimizer), name):
        return
    near = difflib.get_close_matches(name, ATTRIBUTES, 1, 0.75)
    if name in optimizer._choices:
        raise InvalidArgument(
            f"{optimizer._label}: {name} is chosen when the optimizer is wrapped, "
            f"here as {optimizer._choices[name]!r}; wrap it again to change it")
    if near:
        known = [each for each in sorted(ATTRIBUTES) if hasattr(type(optimizer), each)]
        raise InvalidArgument(
            f"{optimizer._label}: expected one of the attributes that steer this optimizer "
            f"({', '.join(known) or 'there is none'}), found '{name}'")


def ranks_named(optimizer: Any) -> list[str]:
    """The attributes that are set and name ranks."""
    return [name for name in ("self_weight", "src_weights", "dst_weights", "src_machine_weights",
                              "dst_machine_weights") if getattr(optimizer, name, None) is not None]


def forget_ranks(optimizer: Any) -> list[str]:
    """Resets what names ranks that were. Returns the names of what was set."""
    named = ranks_named(optimizer)
    for name in named:
        setattr(optimizer, name, None)
    return named


switch = _arguments.switch
weight = _arguments.weight


def rank_weights(value: Any) -> dict[int, float] | None:
    """Other ranks with their weights, or None."""
    return _arguments.weights(current().rank, current().size)(value)


def machine_weights(value: Any) -> dict[int, float] | None:
    """Machines with their weights, this rank's among them or not, or None."""
    return _arguments.weights(-1, current().context.machine_count, "machine")(value)


def sources_of_average(value: Any) -> dict[int, float] | None:
    """The same as `rank_weights`, and this rank itself may be among them (`_plans`)."""
    return _arguments.weights(-1, current().size)(value)


def receivers_of_average(value: Any) -> dict[int, float] | None:
    """The same as `receivers`, and this rank itself may be among them (`_plans`)."""
    return _arguments.receivers(-1, current().size)(value)


def receivers(value: Any) -> dict[int, float] | None:
    """A list of other ranks, which count 1 each, or `rank_weights`."""
    return _arguments.receivers(current().rank, current().size)(value)


def receiving_machines(value: Any) -> dict[int, float] | None:
    """A list of machines, which count 1 each, or `machine_weights`."""
    return _arguments.receivers(-1, current().context.machine_count, "machine")(value)


def shares(value: Any) -> dict[int, float] | None:
    """The share of 1 that other ranks get, or None."""
    return _arguments.shares(current().rank, current().size)(value)
