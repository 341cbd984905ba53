"""Small things that scripts import."""

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import Any


@contextlib.contextmanager
def env(**variables: str | None) -> Iterator[None]:
    """Sets environment variables for the time of the block; None removes one.

        with env(BLUEFOG_TIMEOUT="5"):
            bf.init()
    """
    before = {name: os.environ.get(name) for name in variables}
    try:
        _assign(variables)
        yield
    finally:
        _assign(before)


def check_extension(ext_name: str, pkg_path: str = "", *args: Any) -> None:
    """Accepted for BlueFog's scripts: the extension is loaded with the package, and its import
    raises ImportError where it was not built or fits another torch."""


def _assign(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = str(value)
