"""Named ranges in torch's profiler."""

import functools
from typing import Callable, TypeVar

import torch

Function = TypeVar("Function", bound=Callable)

# A fraction of what entering a range costs that nobody records.
_is_recording = torch.autograd._profiler_enabled


def ranged(function: Function) -> Function:
    """Calls appear in `torch.profiler` as `bluefog::` and the function's name."""
    label = f"bluefog::{function.__name__}"

    @functools.wraps(function)
    def call(*args, **kwargs):
        if not _is_recording():
            return function(*args, **kwargs)
        with torch.profiler.record_function(label):
            return function(*args, **kwargs)

    return call  # type: ignore[return-value]
