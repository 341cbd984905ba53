"""Resident memory of this process: the most, and how much of that came since some moment."""

import contextlib
import ctypes
import pathlib


def status_mib(name):
    """getrusage's maximum would count what this process was before it ran its program."""
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) / 1024
    raise OSError(f"expected {name} in /proc/self/status, found none")


class Growth:
    """The peak over what is resident when this is made: imports and data are then no part of
    it."""

    def __init__(self):
        self._peak_before = status_mib("VmHWM")
        # Freed memory goes back to the system, else the growth would first fill it.
        ctypes.CDLL(None).malloc_trim(0)
        with contextlib.suppress(OSError):  # where it is refused, the peak is that of loading too
            pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        self._base = status_mib("VmRSS")

    def peak_mib(self):
        """The most ever."""
        return max(self._peak_before, status_mib("VmHWM"))

    def grown_mib(self):
        return max(status_mib("VmHWM") - self._base, 0.0)
