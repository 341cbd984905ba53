"""Names of arguments and attributes of older BlueFog scripts."""

import functools
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


def renamed(**new_names: str) -> Callable[[Function], Function]:
    """The function also takes its arguments by old names, with a warning: `renamed(old="new")`."""

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if not new_names.keys().isdisjoint(kwargs):
                kwargs = _translated(function.__name__, new_names, kwargs)
            return function(*args, **kwargs)

        return call  # type: ignore[return-value]  # it has the function's signature

    return decorate


def _translated(function: str, new_names: dict[str, str],
                arguments: dict[str, Any]) -> dict[str, Any]:
    translated: dict[str, Any] = {}
    for name, value in arguments.items():
        new_name = new_names.get(name, name)
        if new_name in translated or (new_name != name and new_name in arguments):
            raise TypeError(f"{function}() got both {name!r} and {new_name!r}")
        if new_name != name:
            warnings.warn(f"{function}: the argument {name!r} is now called {new_name!r}",
                          DeprecationWarning, stacklevel=3)
        translated[new_name] = value
    return translated


def old_attribute(old: str, new: str) -> property:
    """The attribute `new`, by its old name, with a warning."""

    def warn(stacklevel: int) -> None:
        warnings.warn(f"the attribute {old!r} is now called {new!r}", DeprecationWarning,
                      stacklevel)

    def get(owner: Any) -> Any:
        warn(3)
        return getattr(owner, new)

    def put(owner: Any, value: Any) -> None:
        warn(4)
        setattr(owner, new, value)

    return property(get, put)
