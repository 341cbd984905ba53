"""A word to bfrun that this rank has begun to end (base/exit_note.hpp has the other side)."""

import contextlib
import os
import re
import signal
import struct
import time

_LEAVING_AT = 16
"""The place of ExitNote::leaving_at_us."""


def depart() -> None:
    """Tells the watcher of this rank that it has left the others, who go on."""
    if (place := _place()) is not None:
        with contextlib.suppress(OSError):  # of a watcher that is gone
            os.kill(place[1], signal.SIGRTMIN + 6)


def leave() -> None:
    """Notes the time for the watcher of this rank. Does nothing where bfrun has not started it.

    The others may die of this rank's leaving before the interpreter has ended and its exit code is
    known: the time tells who was first.
    """
    place = _place()
    if place is not None and place[1] == os.getppid():
        with contextlib.suppress(OSError):
            os.pwrite(place[0], struct.pack("=q", time.time_ns() // 1000), _LEAVING_AT)
            os.kill(place[1], signal.SIGRTMIN + 1)


def _place() -> tuple[int, int] | None:
    """The descriptor of the note, and its reader, where there is one."""
    place = re.fullmatch(r"(\d+):(\d+):(\d+)", os.environ.get("BFRUN_EXIT_NOTE", ""))
    if place is None:
        return None
    descriptor, inode, watcher = (int(number) for number in place.groups())
    try:
        # A program may have closed the descriptor, and opened another file with its number.
        return (descriptor, watcher) if os.fstat(descriptor).st_ino == inode else None
    except OSError:
        return None
