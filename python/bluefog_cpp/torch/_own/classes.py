"""What the decorators that register classes of a program's own ask of them."""

from typing import Any

from bluefog_cpp import _arguments
from bluefog_cpp.errors import ArgumentTypeError, InvalidArgument


def check_class(call: str, role: str, given: Any, base: type, method: str) -> None:
    """Raises ArgumentTypeError for anything but a subclass of `base`, which `bf` has under that
    name, and InvalidArgument for one without that method of its own."""
    if not (isinstance(given, type) and issubclass(given, base)):
        raise ArgumentTypeError(f"{_arguments.place(call)}: {role}: expected a subclass of "
                                f"bf.{base.__name__}, found {_arguments.described(given)}")
    if getattr(given, method) is getattr(base, method):
        raise InvalidArgument(f"{_arguments.place(call)}: {given.__name__}: expected a method "
                              f"'{method}', found none")


def is_same(former: type, new: type) -> bool:
    """Whether the two stand for one class, which was made twice."""
    return (former.__module__, former.__qualname__) == (new.__module__, new.__qualname__)
