"""Nested state (what `state_dict` returns) from one rank to all. It travels as data: its outline as
JSON, its tensors as tensors; nothing that is received is executed."""

import json
from typing import Any, Iterator, List, Mapping

import torch

from bluefog_cpp.errors import InvalidArgument
from bluefog_cpp.torch._collectives import broadcast
from bluefog_cpp.torch._runtime import current
from bluefog_cpp.torch._tensors import check_sendable

_PLAIN = (bool, int, float, str, type(None))
_DTYPES = {str(dtype).split(".")[1]: dtype for dtype in (
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.uint8, torch.int8,
    torch.int16, torch.int32, torch.int64, torch.bool)}


def broadcast_state(value: Any, root_rank: int) -> Any:
    """Collective. The root's value: dicts, lists and tuples of tensors, numbers, text and None.

    Raises InvalidArgument on the root for anything else, and PeerFailure on the others.
    """
    tensors: List[torch.Tensor] = []
    is_root = current().rank == root_rank
    text = torch.empty(0, dtype=torch.uint8)
    if is_root:
        outline = current().or_refuse(lambda: json.dumps(_outline(value, tensors)))
        text = torch.frombuffer(bytearray(outline.encode()), dtype=torch.uint8)
    length = int(broadcast(torch.tensor(text.numel()), root_rank, name="length of the state's outline"))
    text = broadcast(text if is_root else torch.empty(length, dtype=torch.uint8), root_rank,
                     name="outline of the state")
    outline = json.loads(bytes(text.tolist()))
    own = iter(tensors)
    received = [
        broadcast(next(own) if is_root else torch.empty(shape, dtype=_DTYPES[dtype]), root_rank,
                  name=f"state tensor {place}")
        for place, (dtype, shape) in enumerate(_tensors(outline))]
    return _rebuilt(outline, iter(received))


def _outline(value, tensors):
    if isinstance(value, torch.Tensor):
        check_sendable(value)
        tensors.append(value)
        return ["tensor", str(value.dtype).split(".")[1], list(value.shape)]
    if isinstance(value, Mapping):
        return ["dict", [[_outline(key, tensors), _outline(item, tensors)]
                         for key, item in value.items()]]
    if isinstance(value, (list, tuple)):
        return ["tuple" if isinstance(value, tuple) else "list",
                [_outline(item, tensors) for item in value]]
    if isinstance(value, _PLAIN):
        return ["plain", value]
    raise InvalidArgument(f"rank {current().rank}: expected state of tensors, numbers and text, found "
                          f"{type(value).__name__}")


def _tensors(outline) -> Iterator:
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


def _rebuilt(outline, tensors):
    kind = outline[0]
    if kind == "tensor":
        return next(tensors)
    if kind == "dict":
        return {_rebuilt(key, tensors): _rebuilt(item, tensors) for key, item in outline[1]}
    if kind in ("list", "tuple"):
        items = [_rebuilt(item, tensors) for item in outline[1]]
        return tuple(items) if kind == "tuple" else items
    return outline[1]
