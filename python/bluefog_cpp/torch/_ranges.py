"""How torch's tools see calls: the profiler as named ranges, the compiler not at all."""

import functools
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import torch

Function = TypeVar("Function", bound=Callable[..., Any])

# The check costs a fraction of entering a range that nobody records.
_is_recording = torch.autograd._profiler_enabled  # type: ignore[attr-defined]  # has no stub


def is_in_sight() -> bool:
    """Whether one of these tools may look at calls: others need no wrapper."""
    return "torch._dynamo" in sys.modules or _is_recording()


def ranged(function: Function) -> Function:
    """Calls appear in `torch.profiler` as `bluefog::` and the function's name, and `torch.compile`
    leaves them out of its graphs."""
    return ranged_as(function.__name__)(function)


def ranged_as(name: str) -> Callable[[Function], Function]:
    """`ranged`, with another name."""
    label = f"bluefog::{name}"

    def decorate(function: Function) -> Function:
        @uncompiled
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if not _is_recording():
                return function(*args, **kwargs)
            with torch.profiler.record_function(label):
                return function(*args, **kwargs)

        return call  # type: ignore[return-value]  # it has the function's signature

    return decorate


def uncompiled(function: Function) -> Function:
    """The function with all that it calls, out of the compiler's sight.

    Like `torch.compiler.disable`, which would load the compiler here and now: more than a second.
    """
    disabled: Callable[..., Any] | None = None

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal disabled
        if disabled is None:
            if "torch._dynamo" not in sys.modules:
                return function(*args, **kwargs)
            disabled = torch.compiler.disable(function)
        return disabled(*args, **kwargs)

    return call  # type: ignore[return-value]  # it has the function's signature
