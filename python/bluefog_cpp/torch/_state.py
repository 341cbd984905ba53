"""Nested state (what `state_dict` returns) from one rank to all. It travels as data: its outline as
JSON, its tensors as tensors; nothing that is received is executed."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy
import torch

from bluefog_cpp import _arguments
from bluefog_cpp._extension import core
from bluefog_cpp.errors import Error, InvalidArgument
from bluefog_cpp.torch._runtime import current
from bluefog_cpp.torch._tensors import elements

_PLAIN = (bool, int, float, str, type(None))
_DTYPES = {str(dtype).split(".")[1]: dtype for dtype in (
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.uint8, torch.int8,
    torch.int16, torch.int32, torch.int64, torch.bool)}


def broadcast_state(call: str, make: Callable[[], Any], statement: Callable[[], list[str]],
                    root_rank: Any) -> Any:
    """Collective. The value that `make` returns on the root: dicts, lists and tuples of tensors,
    numbers, text and None. Other ranks do not call it.

    call: the user's, for messages. statement: lines that have to be the same on all ranks.
    Raises MismatchError where it is not, InvalidArgument on a rank with a wrong argument, or a root
    with anything else in its state, and PeerFailure on the others.
    """
    runtime = current()
    tensors: list[torch.Tensor] = []
    lines: list[str] = []
    is_root, text = False, ""
    problem: Exception | None = None
    try:
        root_rank = root(runtime.size, root_rank)
        lines += [f"root {root_rank}", *statement()]
        is_root = runtime.rank == root_rank
        if is_root:
            text = json.dumps(_outline(make(), tensors, "state"))
    except Exception as error:
        problem = error
    check_agreed(call, lines, problem)
    texts = core.gather_bytes(runtime.context, call, text.encode())
    outline = json.loads(texts[root_rank])
    if not is_root:
        tensors = [torch.empty(shape, dtype=_DTYPES[dtype]) for dtype, shape in _tensors(outline)]
    core.broadcast_tensors(runtime.context, [(f"state {place}", tensor)
                                             for place, tensor in enumerate(tensors)], root_rank,
                           call)
    return _rebuilt(outline, iter(tensors))


def check_agreed(call: str, lines: list[str], problem: Exception | None) -> None:
    """Collective. Raises MismatchError naming the first of `lines` that differs between ranks;
    `problem`, if this rank has one, and PeerFailure on the others."""
    said = "" if problem is None else str(problem) or type(problem).__name__
    try:
        core.check_ranks_agree(current().context, call, list(map(_arguments.utf8, lines)),
                               _arguments.utf8(said))
    except InvalidArgument as error:
        if isinstance(problem, Error):
            raise type(problem)(str(error)) from None
        raise


def root(size: int, root_rank: Any) -> int:
    """The number of a rank. Raises InvalidArgument that names the argument."""
    try:
        return _arguments.rank(size)(root_rank)
    except InvalidArgument as error:
        raise type(error)(f"root_rank: {error}") from None


def _outline(value: Any, tensors: list[torch.Tensor], place: str) -> list[Any]:
    """The value in words of JSON; its tensors are added to `tensors`. place: its own, for
    messages."""
    if isinstance(value, torch.Tensor):
        try:
            tensors.append(elements(value.detach()))
        except Error as error:
            raise type(error)(f"{place}: {error}") from None
        return ["tensor", str(value.dtype).split(".")[1], list(value.shape)]
    if isinstance(value, Mapping):
        return ["dict", [[_outline(key, tensors, f"a key of {place}"),
                          _outline(item, tensors, f"{place}[{key!r}]")]
                         for key, item in value.items()]]
    if isinstance(value, (list, tuple)):
        return ["tuple" if isinstance(value, tuple) else "list",
                [_outline(item, tensors, f"{place}[{i}]") for i, item in enumerate(value)]]
    if isinstance(value, numpy.generic):
        value = value.item()
    if isinstance(value, _PLAIN):
        return ["plain", value]
    raise InvalidArgument(f"{place}: expected a tensor, a number, text or None, found "
                          f"{_arguments.described(value)}")


def _tensors(outline: list[Any]) -> Iterator[tuple[str, list[int]]]:
    """Dtype and shape of each tensor, in the order in which `_outline` met them."""
    kind = outline[0]
    if kind == "tensor":
        yield outline[1], outline[2]
    elif kind == "dict":
        for key, item in outline[1]:
            yield from _tensors(key)
            yield from _tensors(item)
    elif kind in ("list", "tuple"):
        for item in outline[1]:
            yield from _tensors(item)


def _rebuilt(outline: list[Any], tensors: Iterator[torch.Tensor]) -> Any:
    kind = outline[0]
    if kind == "tensor":
        return next(tensors)
    if kind == "dict":
        return {_rebuilt(key, tensors): _rebuilt(item, tensors) for key, item in outline[1]}
    if kind in ("list", "tuple"):
        items = [_rebuilt(item, tensors) for item in outline[1]]
        return tuple(items) if kind == "tuple" else items
    return outline[1]
