"""Tensors in memory that the ranks of a host share."""

import math
import operator
from collections.abc import Sequence
from typing import Any

import torch

from bluefog_cpp._arguments import checked, shown
from bluefog_cpp._extension import core
from bluefog_cpp.errors import ArgumentTypeError, InvalidArgument
from bluefog_cpp.torch._runtime import current

MOST_ELEMENTS = 2**59


def shared_zeros(size: int | Sequence[int], dtype: torch.dtype | None = None) -> torch.Tensor:
    """Zeros on the CPU in memory that the other ranks of this host reach, else as `torch.zeros`.

    `allreduce_` and `neighbor_allreduce_` of such tensors on all ranks, from 128 KiB on (among more
    than 4 ranks from 32 KiB for each), copy nothing on its way: each rank forms its share of all
    results where they lie, so that they wait for all ranks of the step, not for neighbours alone
    (BLUEFOG_SYNCHRONISATION=neighbours where others must not be waited for). Not collective; each
    rank makes its own. A fork of the process shares the memory: what one writes the other one sees.
    The system's memory is taken at once. The tensor cannot grow (`resize_`), like one of
    torch.from_blob.

    size: one number, or one for each dimension. dtype: default: torch's default dtype.
    Raises InvalidArgument, ArgumentTypeError; TransportError beyond what the machine has
    available, or the system admits.
    """
    runtime = current()
    shape = checked("shared_zeros", "size", _shape, size)
    checked("shared_zeros", "dtype", _dtype, dtype)
    return core.shared_zeros(runtime.context, shape, torch.empty(0, dtype=dtype))


def _shape(size: Any) -> list[int]:
    expected = "expected a whole number from 0, or a list of such"
    try:
        if isinstance(size, (bool, torch.Tensor)):
            raise TypeError
        numbers = [size] if hasattr(size, "__index__") else list(size)
        shape = [operator.index(number) for number in numbers if not isinstance(number, bool)]
        if len(shape) < len(numbers):
            raise TypeError
    except TypeError:
        raise ArgumentTypeError(f"{expected}, found {shown(size)}") from None
    if any(number < 0 for number in shape) or math.prod(shape) > MOST_ELEMENTS:
        raise InvalidArgument(f"{expected}, at most 2**59 elements, found {shown(size)}")
    return shape


def _dtype(dtype: Any) -> None:
    if dtype is not None and not isinstance(dtype, torch.dtype):
        raise ArgumentTypeError(f"expected a torch.dtype or None, found {shown(dtype)}")
