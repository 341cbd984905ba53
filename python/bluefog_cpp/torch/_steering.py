"""Attributes of wrapped optimizers that steer their next steps: checked when they are set, so that a
slip of the pen does not train another algorithm."""

import difflib
import math
from typing import Any, Callable, Iterable, Mapping, Optional, Sequence, Set

import torch

from bluefog_cpp.errors import InvalidArgument
from bluefog_cpp.torch._runtime import current

ATTRIBUTES: Set[str] = {"num_steps_per_communication", "communication_type"}
"""Names that some wrapped optimizer knows."""


class Steering:
    """An attribute with a default; `check` raises InvalidArgument for a value that it cannot have."""

    def __init__(self, default: Any, check: Callable[[Any], None]):
        self._default = default
        self._check = check
        self._name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name
        ATTRIBUTES.add(name)

    def __get__(self, instance: Optional[Any], owner: Optional[type] = None) -> Any:
        return self._default if instance is None else instance.__dict__.get(self._name, self._default)

    def __set__(self, instance: Any, value: Any) -> None:
        try:
            self._check(value)
        except InvalidArgument as error:
            raise InvalidArgument(f"{instance._label}, {self._name}: {error}") from None
        instance.__dict__[self._name] = value


def check_name(optimizer: Any, name: str) -> None:
    """Raises InvalidArgument for the name of an attribute that only other optimizers know, or that is
    nearly one of those."""
    if name.startswith("_") or name in optimizer.__dict__ or hasattr(type(optimizer), name):
        return
    near = difflib.get_close_matches(name, ATTRIBUTES, 1, 0.75)
    if name in optimizer._choices:
        raise InvalidArgument(f"{optimizer._label}: {name} is chosen when the optimizer is wrapped, "
                              f"here as {optimizer._choices[name]!r}; wrap it again to change it")
    if near:
        known = [each for each in sorted(ATTRIBUTES) if hasattr(type(optimizer), each)]
        raise InvalidArgument(
            f"{optimizer._label}: expected one of the attributes that steer this optimizer "
            f"({', '.join(known) or 'there is none'}), found '{name}'")


def switch(value: Any) -> None:
    """True or False."""
    if not isinstance(value, bool):
        raise InvalidArgument(f"expected True or False, found {value!r}")


def weight(value: Any) -> None:
    """A finite number or None."""
    if value is not None:
        _number(value)


def rank_weights(value: Any) -> None:
    """Other ranks with their weights, or None."""
    _check_weights(value, current().rank, current().size, "rank")


def machine_weights(value: Any) -> None:
    """Other machines with their weights, or None."""
    context = current().context
    _check_weights(value, context.machine_rank, context.machine_count, "machine")


def receivers(value: Any) -> None:
    """A list of other ranks, or `rank_weights`."""
    _check_receivers(value, current().rank, current().size, "rank")


def receiving_machines(value: Any) -> None:
    """A list of other machines, or `machine_weights`."""
    context = current().context
    _check_receivers(value, context.machine_rank, context.machine_count, "machine")


def shares(value: Any) -> None:
    """What other ranks get of 1, or None."""
    rank_weights(value)
    given = [] if value is None else [float(share) for share in value.values()]
    if any(share < 0 for share in given) or sum(given) > 1 + 1e-9:
        raise InvalidArgument(f"expected shares of 0 or more, together at most 1, found {value!r}")


def _check_weights(value, own, count, what) -> None:
    if value is None:
        return
    if not isinstance(value, Mapping):
        raise InvalidArgument(f"expected a dict from {what} to weight or None, found {value!r}")
    _check_ranks(value, own, count, what)
    for each in value.values():
        _number(each)


def _check_receivers(value, own, count, what) -> None:
    if value is None or isinstance(value, Mapping):
        _check_weights(value, own, count, what)
        return
    if isinstance(value, str) or not (isinstance(value, (Sequence, Set)) or hasattr(value, "__len__")):
        raise InvalidArgument(f"expected a list of {what}s, a dict from {what} to weight, or None, "
                              f"found {value!r}")
    _check_ranks(value, own, count, what)


def _check_ranks(ranks: Iterable, own: int, count: int, what: str) -> None:
    ranks = list(ranks)
    for each in ranks:
        if isinstance(each, bool) or not hasattr(each, "__index__"):
            raise InvalidArgument(f"expected the numbers of {what}s, found {each!r}")
        if not 0 <= int(each) < count or int(each) == own:
            raise InvalidArgument(f"expected other {what}s than {own} below {count}, found {each!r}")
    if len({int(each) for each in ranks}) != len(ranks):
        raise InvalidArgument(f"expected each {what} once, found {ranks}")


def _number(value: Any) -> float:
    try:
        if isinstance(value, (bool, str, torch.Tensor)) and not _is_scalar(value):
            raise TypeError
        number = float(value)
    except (TypeError, ValueError):
        raise InvalidArgument(f"expected a number, found {value!r}") from None
    if not math.isfinite(number):
        raise InvalidArgument(f"expected a finite number, found {number}")
    return number


def _is_scalar(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.numel() == 1
