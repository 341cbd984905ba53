"""Checks of public functions' arguments, so that a wrong one is refused in the user's
words.

Each check returns the value as the core takes it, or raises InvalidArgument (ArgumentTypeError for
a value of another type) with what was expected and what was found. `checked` puts before that which
rank, which call and which argument.
"""

import math
import operator
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import networkx as nx
import numpy
import torch

from bluefog_cpp.errors import ArgumentTypeError, InvalidArgument

T = TypeVar("T")
Check = Callable[[Any], Any]
Weights = dict[int, float] | None

_MOST_SHOWN = 120
_SWITCHES = (bool, numpy.bool_)
_INTEGERS = (int, numpy.integer)
_LARGEST = 2**63 - 1
_own_rank: int | None = None


def checked(call: str, argument: str, check: Callable[[Any], T], value: Any) -> T:
    """`check(value)`, whose error says where the value was given."""
    try:
        return check(value)
    except InvalidArgument as error:
        raise type(error)(f"{place(call)}: {argument}: {error}") from None


def place(call: str) -> str:
    """The call in messages, with this process's rank where it has one."""
    return call if _own_rank is None else f"rank {_own_rank}, {call}"


def name_rank(own: int | None) -> None:
    """The rank that messages name from now on; None: this process has none."""
    global _own_rank
    _own_rank = own


def shown(value: Any) -> str:
    """The value in messages, in a line."""
    if isinstance(value, torch.Tensor) and value.dim() > 0:
        return f"a {type(value).__name__} of shape {list(value.shape)}"
    text = " ".join(ascii(value).split())
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def utf8(words: str) -> str:
    """The words as the core takes them, with what UTF-8 cannot hold (lone surrogates) escaped."""
    return words if words.isascii() else words.encode(errors="backslashreplace").decode()


# ---- values


def switch(value: Any) -> bool:
    """True or False, or the integers 1 and 0, as BlueFog's scripts write."""
    if not isinstance(value, _SWITCHES) and not (isinstance(value, _INTEGERS) and value in (0, 1)):
        raise ArgumentTypeError(f"expected True or False, found {shown(value)}")
    return bool(value)


def number(value: Any) -> float:
    """A finite number."""
    try:
        if isinstance(value, (*_SWITCHES, str, bytes, bytearray)):
            raise TypeError
        if isinstance(value, torch.Tensor) and value.numel() != 1:
            raise TypeError
        found = float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise ArgumentTypeError(f"expected a number, found {shown(value)}") from None
    if not math.isfinite(found):
        raise InvalidArgument(f"expected a finite number, found {found}")
    return found


def weight(value: Any) -> float | None:
    """A finite number or None."""
    return None if value is None else number(value)


def integer(value: Any) -> int:
    """A whole number; not True or False."""
    try:
        if isinstance(value, _SWITCHES):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise ArgumentTypeError(f"expected a whole number, found {shown(value)}") from None


def at_least(least: int, most: int = _LARGEST) -> Callable[[Any], int]:
    """A check for whole numbers from `least` to `most`."""

    def check(value: Any) -> int:
        found = integer(value)
        if not least <= found <= most:
            limit = f"{least} or more" if found < least else f"{most} or less"
            raise InvalidArgument(f"expected {limit}, found {found}")
        return found

    return check


def one_of(*values: Any) -> Check:
    """A check for one of these."""

    def check(value: Any) -> Any:
        if not any(type(value) is type(each) and value == each for each in values):
            raise InvalidArgument(
                f"expected one of {', '.join(map(str, values))}, found {shown(value)}")
        return value

    return check


synchronisation = one_of("auto", "component", "neighbours")
"""Whom a call in place waits for."""


def instance_of(kind: type, what: str) -> Check:
    """A check for objects of a class, called `what` in words."""

    def check(value: Any) -> Any:
        if not isinstance(value, kind):
            raise ArgumentTypeError(f"expected {what}, found {described(value)}")
        return value

    return check


def list_of_tensors(value: Any) -> list[torch.Tensor]:
    """Of anything that lists them, but a tensor, which would list its rows, or a mapping."""
    if isinstance(value, torch.Tensor | Mapping) or not isinstance(value, Iterable):
        raise ArgumentTypeError(f"expected a list of torch.Tensor, found {shown(value)}")
    tensors = list(value)
    for place_in_list, tensor in enumerate(tensors):
        if not isinstance(tensor, torch.Tensor):
            raise ArgumentTypeError(f"expected a list of torch.Tensor, found {shown(tensor)} at "
                                    f"place {place_in_list}")
    return tensors


def numbers(value: Any) -> dict[str, float]:
    """A dict of numbers by name, or None for none."""
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise ArgumentTypeError(f"expected a dict of numbers by name, found {shown(value)}")
    found = {}
    for key, item in value.items():
        try:
            found[key] = number(item)
        except (ArgumentTypeError, InvalidArgument) as error:
            raise type(error)(f"{shown(key)}: {error}") from None
    return found


def described(value: Any) -> str:
    """The value's type, where the value itself says nothing."""
    return "None" if value is None else f"{type(value).__name__} ({shown(value)})"


def text(value: Any) -> str:
    """A text, not empty."""
    if not isinstance(value, str):
        raise ArgumentTypeError(f"expected a text, found {shown(value)}")
    if not value:
        raise InvalidArgument("expected a text, found an empty one")
    return _encodable(value)


def dashed_name(value: Any) -> str:
    """A name of lower-case letters, digits, hyphens and underscores."""
    found = text(value)
    if not re.fullmatch("[a-z0-9][a-z0-9_-]*", found):
        raise InvalidArgument("expected lower-case letters, digits, hyphens and underscores, found "
                              f"{shown(found)}")
    return found


def name(value: Any) -> str:
    """A text, or None for none."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ArgumentTypeError(f"expected a text or None, found {shown(value)}")
    return _encodable(value)


def _encodable(value: str) -> str:
    if utf8(value) != value:
        raise InvalidArgument("expected a text that UTF-8 can hold, found one with a lone "
                              f"surrogate: {shown(value)}")
    return value


def path(value: Any) -> bytes:
    """The name of a file, as the system has it."""
    if not isinstance(value, (str, os.PathLike)):
        raise ArgumentTypeError(f"expected the name of a file, found {shown(value)}")
    found = os.fsencode(value)
    if not found or b"\0" in found:
        raise InvalidArgument(f"expected the name of a file, found {shown(value)}")
    return found


def length(value: Any) -> int:
    """The length of something that has one, at least 1."""
    if not hasattr(value, "__len__"):
        raise ArgumentTypeError(f"expected something with a length, found {described(value)}")
    if len(value) < 1:
        raise InvalidArgument("expected a length of at least 1, found 0")
    return len(value)


def function(value: Any) -> Any:
    """Something to call."""
    if not callable(value):
        raise ArgumentTypeError(f"expected a function, found {shown(value)}")
    return value


def function_or_none(value: Any) -> Any:
    """Something to call, or None."""
    if value is not None and not callable(value):
        raise ArgumentTypeError(f"expected a function or None, found {shown(value)}")
    return value


# ---- graphs


def digraph(value: Any) -> nx.DiGraph:
    """A networkx.DiGraph over whatever nodes."""
    if isinstance(value, nx.Graph) and not value.is_directed():
        raise ArgumentTypeError(f"expected a networkx.DiGraph, found an undirected "
                                f"{type(value).__name__}; its to_directed() has every edge in both "
                                "directions")
    if not isinstance(value, nx.DiGraph):
        raise ArgumentTypeError(f"expected a networkx.DiGraph, found {type(value).__name__}")
    if value.is_multigraph():
        raise ArgumentTypeError(
            f"expected a networkx.DiGraph, found a {type(value).__name__}, which may have several "
            "edges between two ranks; networkx.DiGraph(graph) keeps one of each")
    return value


def graph(value: Any) -> nx.DiGraph:
    """A networkx.DiGraph over 0 … n - 1."""
    value = digraph(value)
    size = value.number_of_nodes()
    if set(value.nodes) != set(range(size)):
        raise ArgumentTypeError(f"expected the nodes to be the ranks 0 to {size - 1}, found "
                                f"{shown(list(value.nodes))}")
    return value


# ---- ranks and their weights


def rank(count: int, what: str = "rank") -> Callable[[Any], int]:
    """A check for ranks below `count`."""

    def check(value: Any) -> int:
        try:
            found = integer(value)
        except InvalidArgument:
            raise ArgumentTypeError(
                f"expected the number of a {what}, found {shown(value)}") from None
        if not 0 <= found < count:
            raise InvalidArgument(f"expected a {what} of 0 to {count - 1}, found {found}")
        return found

    return check


def weights(own: int, count: int, what: str = "rank") -> Callable[[Any], Weights]:
    """A check for other ranks with their weights, or None. own: -1 where any rank will do."""

    def check(value: Any) -> Weights:
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise ArgumentTypeError(
                f"expected a dict from {what} to weight or None, found {shown(value)}")
        return dict(zip(_others(value, own, count, what),
                        [number(each) for each in value.values()]))

    return check


def receivers(own: int, count: int, what: str = "rank") -> Callable[[Any], Weights]:
    """A check for a list of other ranks, which count 1 each, or `weights`. own: as there."""

    def check(value: Any) -> Weights:
        if value is None or isinstance(value, Mapping):
            return weights(own, count, what)(value)
        if not _is_list(value):
            raise ArgumentTypeError(
                f"expected a list of {what}s, a dict from {what} to weight, or None, "
                f"found {shown(value)}")
        return dict.fromkeys(_others(value, own, count, what), 1.0)

    return check


def ranks(own: int, count: int) -> Callable[[Any], list[int]]:
    """A check for a list of other ranks; any iterable, once."""

    def check(value: Any) -> list[int]:
        if isinstance(value, (str, bytes)) or not isinstance(value, (Iterable, torch.Tensor)):
            raise ArgumentTypeError(f"expected a list of ranks, found {shown(value)}")
        return _others(value, own, count, "rank")

    return check


def shares(own: int, count: int) -> Callable[[Any], Weights]:
    """A check for what other ranks get of 1, or None."""

    def check(value: Any) -> Weights:
        given = weights(own, count)(value)
        if given and (min(given.values()) < 0 or sum(given.values()) > 1 + 1e-9):
            raise InvalidArgument(
                f"expected shares of 0 or more, together at most 1, found {shown(value)}")
        return given

    return check


def _is_list(value: Any) -> bool:
    return not isinstance(value, (str, bytes)) and (isinstance(value, (Sequence, set))
                                                    or hasattr(value, "__len__"))


def _others(values: Iterable[Any], own: int, count: int, what: str) -> list[int]:
    try:
        values = list(values)
    except TypeError:  # of a 0-d tensor
        raise ArgumentTypeError(f"expected a list of {what}s, found {shown(values)}") from None
    found = []
    for each in values:
        try:
            found.append(integer(each))
        except InvalidArgument:
            raise ArgumentTypeError(
                f"expected the numbers of {what}s, found {shown(each)}") from None
        if not 0 <= found[-1] < count or found[-1] == own:
            others = (f"other {what}s than {own} below {count}" if own >= 0
                      else f"{what}s of 0 to {count - 1}")
            way_out = "; its own value needs no edge, and counts by the self weight"
            raise InvalidArgument(f"expected {others}, found {found[-1]}"
                                  f"{way_out if found[-1] == own else ''}")
    if len(set(found)) != len(found):
        raise InvalidArgument(f"expected each {what} once, found {shown(found)}")
    return found


Shape = tuple[int, int] | None


def grid_shape(value: Any) -> Shape:
    """Rows and columns, or None."""
    if value is None:
        return None
    if isinstance(value, (str, bytes)) or not hasattr(value, "__len__") or len(value) != 2:
        raise ArgumentTypeError(
            f"expected two numbers, rows and columns, or None, found {shown(value)}")
    rows, columns = (at_least(1, 2**31 - 1)(each) for each in value)
    return rows, columns
