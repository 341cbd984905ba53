"""Bytes that ranks have sent over the network, as the kernel counts them, headers included."""

import os
import pathlib

import torch

import bluefog_cpp.torch as bf

COUNTERS = pathlib.Path("/proc/net/dev")
LOOPBACK = "lo"
SENT = 8  # the place of that column among a line's numbers


def stand_apart():
    """Before `bf.init`: each rank is a host of its own, so that all that it sends goes through the
    loopback interface, as gloo's messages do."""
    rank = os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ["RANK"]
    os.environ.update(BLUEFOG_HOST_ID=f"rank {rank}", BLUEFOG_NETWORK="tcp")


def counted(is_loopback, text):
    """The sum over the interfaces that count of the lines of /proc/net/dev."""
    lines = [line.split(":") for line in text.splitlines()[2:]]
    return sum(int(numbers.split()[SENT]) for name, numbers in lines
               if (name.strip() == LOOPBACK) == is_loopback)


class SentBytes:
    """Of all ranks together, in steps: what comes between `stop` and `start` does not count."""

    def __init__(self, hosts):
        self._is_loopback = hosts == 1
        speaks = bf.rank() == 0 if self._is_loopback else bf.local_rank() == 0
        self._speaks = speaks and COUNTERS.exists()
        self.total = 0
        self._begun = 0

    def start(self):
        self._begun = self._now()

    def stop(self):
        """Collective."""
        own = torch.tensor([self._now() - self._begun], dtype=torch.float64)
        self.total += int(bf.allreduce(own, average=False, name="sent bytes").item())

    def _now(self):
        return counted(self._is_loopback, COUNTERS.read_text()) if self._speaks else 0
