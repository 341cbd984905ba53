"""Bytes that have left this host, as the kernel counts them for its interfaces."""

import pathlib

import torch

import bluefog_cpp.torch as bf

COUNTERS = pathlib.Path("/proc/net/dev")
SENT = 8  # the place of that column among a line's numbers


class Traffic:
    """Bytes since the last look. All that the host has sent to others counts, of other programs
    too; ranks of one host meet in its memory and send none."""

    def __init__(self):
        self._before = self._count()

    def since_last(self):
        """Collective: of all hosts together; None where the kernel has no counters."""
        now = self._count()
        own = now - self._before if bf.local_rank() == 0 else 0
        self._before = now
        total = bf.allreduce(torch.tensor([own], dtype=torch.float64), average=False,
                             name="traffic").item()
        return int(total) if COUNTERS.exists() else None

    @staticmethod
    def _count():
        if not COUNTERS.exists():
            return 0
        lines = [line.split(":") for line in COUNTERS.read_text().splitlines()[2:]]
        return sum(int(numbers.split()[SENT]) for name, numbers in lines if name.strip() != "lo")
