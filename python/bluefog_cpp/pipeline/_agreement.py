"""What ranks compare, or tell each other, before they rely on it."""

import os
import pathlib
import socket
from collections.abc import Sequence
from itertools import zip_longest

import torch.distributed as dist

from bluefog_cpp.errors import InvalidArgument, MismatchError, PeerFailure


def agree(problem: str, lines: Sequence[str]) -> None:
    """Compares what ranks state before they rely on it."""
    stated: list[tuple[str, list[str]]] = [("", [])] * dist.get_world_size()
    dist.all_gather_object(stated, (problem, list(lines)))
    rank = dist.get_rank()
    if problem:
        raise InvalidArgument(f"rank {rank}, {problem}")
    for other, (found, _) in enumerate(stated):
        if found:
            raise PeerFailure(f"rank {rank}: rank {other} refused, {found}", other)
    reference = stated[0][1]
    for other, (_, theirs) in enumerate(stated):
        for line, first in zip_longest(theirs, reference, fillvalue="nothing"):
            if line != first:
                raise MismatchError(
                    f"rank {rank}, ElasticPipeline: expected the same on all ranks, found "
                    f"'{first}' on rank 0, '{line}' on rank {other}")


def machines() -> list[str]:
    """Collective. The machine of each rank: BLUEFOG_HOST_ID where it is set, else the host's name
    and the start of its system, as two hosts may have one name."""
    own = os.environ.get("BLUEFOG_HOST_ID", "")
    if not own:
        boot = pathlib.Path("/proc/sys/kernel/random/boot_id")
        own = f"{socket.gethostname()} {boot.read_text().strip() if boot.exists() else ''}"
    found = [""] * dist.get_world_size()
    dist.all_gather_object(found, own)
    return found
