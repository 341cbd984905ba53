"""The calls that were started and are known by their handles."""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch

from bluefog_cpp.errors import LateMismatchError

Place = tuple[int, int]
"""First and last address but one."""


class Call(NamedTuple):
    """A call that was started. `work` has `wait` and `done`; `finish` makes the result."""
    work: Any
    finish: Callable[[Any], torch.Tensor | None]
    failed: Callable[[BaseException], None]
    has_result: bool
    writes: tuple[Place, ...]
    """The memory that the call itself writes into, where it is the caller's."""


class Calls:
    """Calls by their handles. A result is kept until somebody waits for it. A call without one lets
    go of all that it used when it has ended: this is seen when another such call is added, or is
    asked for.
    """

    _MOST_ENDED = 1 << 16

    def __init__(self) -> None:
        self._calls: dict[int, Call] = {}
        self._next_handle = 0
        self._without_result: deque[int] = deque()
        """The calls that may have ended without anybody having asked."""
        self._ended: dict[int, None] = {}
        """The last calls without a result that have ended well and were not waited for."""

    def add(self, work: Any, finish: Callable[[Any], torch.Tensor | None],
            failed: Callable[[BaseException], None], writes: Iterable[Place]) -> int:
        return self._add(Call(work, finish, failed, True, tuple(writes)))

    def add_without_result(self, work: Any, finish: Callable[[], None],
                           writes: Iterable[Place]) -> int:
        """Such calls end in the order in which they were started."""
        self._end_some()
        handle = self._add(Call(work, lambda _: finish(), lambda _: None, False, tuple(writes)))
        self._without_result.append(handle)
        return handle

    def _add(self, call: Call) -> int:
        handle = self._next_handle
        self._next_handle += 1
        self._calls[handle] = call
        return handle

    def knows(self, handle: int) -> bool:
        return handle in self._calls or handle in self._ended

    def places_written(self) -> list[Place]:
        """The memory into which calls write that are under way, or whose results are not taken."""
        calls = list(self._calls.values())  # other threads begin and end calls
        return [place for call in calls if call.has_result or not call.work.done()
                for place in call.writes]

    def is_done(self, handle: int) -> bool:
        """handle: a known one."""
        call = self._calls.get(handle)
        if call is None or not call.work.done():
            return call is None
        if not call.has_result:
            self._end(handle, call)
        return True

    def wait(self, handle: int) -> torch.Tensor | Any:
        """The result, None of a call without; the handle is used up, also when it failed."""
        call = self._calls.get(handle)
        if call is None:
            self._ended.pop(handle, None)
            return None
        try:
            return call.finish(call.work.wait())
        except LateMismatchError as error:  # the call itself has done its work
            result = getattr(call.work, "result", None)
            error.result = call.finish(result() if result else None)
            call.failed(error)
            raise
        except BaseException as error:
            call.failed(error)
            raise
        finally:
            self._calls.pop(handle, None)

    def _end_some(self) -> None:
        while self._without_result:
            handle = self._without_result[0]
            call = self._calls.get(handle)
            if call is not None and not call.work.done():
                return
            self._without_result.popleft()
            if call is not None:
                self._end(handle, call)

    def _end(self, handle: int, call: Call) -> None:
        """Lets go of a call without result that is done, but for its error."""
        try:
            call.finish(call.work.wait())
        except Exception:  # for whoever waits
            self._calls[handle] = call._replace(finish=lambda _: None)
            return
        if self._calls.pop(handle, None) is not None:
            self._ended[handle] = None
        while len(self._ended) > self._MOST_ENDED:
            self._ended.pop(next(iter(self._ended)), None)
