"""torch's stores, as the core's start over a store calls them."""

import time
from typing import Any

from bluefog_cpp import _arguments
from bluefog_cpp.errors import ArgumentTypeError

_CALLS = ("set", "get", "add", "check", "delete_key")
_FIRST_PAUSE, _LONGEST_PAUSE = 0.0005, 0.02


class StoreView:
    """A `torch.distributed.Store`, or whatever has its calls.

    It looks for a value again and again, and never has the store wait: torch's stores let nobody
    else through meanwhile, and complain on standard error when a wait has taken its time.
    """

    def __init__(self, store: Any, description: str):
        self._store = store
        self.description = description

    def set(self, key: str, value: bytes) -> None:
        self._store.set(key, value)

    def get(self, key: str, seconds: float) -> bytes | None:
        until = time.monotonic() + seconds
        pause = _FIRST_PAUSE
        while not self._store.check([key]):
            left = until - time.monotonic()
            if left <= 0:
                return None
            time.sleep(min(pause, left))
            pause = min(2 * pause, _LONGEST_PAUSE)
        return bytes(self._store.get(key))

    def add(self, key: str, amount: int) -> int:
        return int(self._store.add(key, amount))

    def remove(self, key: str) -> None:
        self._store.delete_key(key)


def checked_store(value: Any) -> Any:
    """The check of an argument that is to be a store."""
    missing = [name for name in _CALLS if not callable(getattr(value, name, None))]
    if missing:
        raise ArgumentTypeError(
            "expected a torch.distributed.Store, or an object with its calls, found "
            f"{_arguments.described(value)}, which has no {missing[0]}()")
    return value
