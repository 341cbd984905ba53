"""Statements of ranks, which they compare before they rely on them."""

import json
import os
import pathlib
import socket
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import torch
import torch.distributed as dist

from bluefog_cpp.errors import InvalidArgument, MismatchError, PeerFailure


def agree(problem: str, lines: Sequence[str]) -> None:
    """Compares what ranks state before they rely on it."""
    stated = _gathered([problem, list(lines)])
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


_BATCH_TAG = 2


class Told:
    """The message to the stage behind that a batch begins."""

    def __init__(self, words: torch.Tensor, target: int) -> None:
        self._words = words  # which live until they are sent
        self._work = dist.isend(words, target, tag=_BATCH_TAG)

    def wait(self) -> None:
        if self._work is not None:
            self._work.wait()


def begin_batch(kind: str, rows: int, all_rows: int, *, stage: int, stages: int) -> Told | None:
    """The ranks of a pipeline begin a batch, of which each has been told the same: with others they
    would take messages for those of another micro-batch or step. Returns the message that has to be
    waited for at its end; raises MismatchError where the stage before has another batch."""
    rank, kinds = dist.get_rank(), ("a step", "an evaluation")
    own = torch.tensor([kinds.index(kind), rows, all_rows])
    told = Told(own, rank + 1) if stage < stages - 1 else None
    if stage:
        theirs = torch.empty_like(own)
        dist.recv(theirs, rank - 1, tag=_BATCH_TAG)
        if not theirs.equal(own):
            texts = [f"{kinds[which]} of {some} rows, {every} in all pipelines"
                     for which, some, every in (theirs.tolist(), own.tolist())]
            raise MismatchError(f"rank {rank}, ElasticPipeline, stage {stage}: expected the batch "
                                f"of rank {rank - 1}, {texts[0]}, found {texts[1]}")
    return told


def machines() -> list[str]:
    """Collective. The machine of each rank: BLUEFOG_HOST_ID where it is set, else the host's name
    and the start of its system, as two hosts may have one name."""
    own = os.environ.get("BLUEFOG_HOST_ID", "")
    if not own:
        boot = pathlib.Path("/proc/sys/kernel/random/boot_id")
        own = f"{socket.gethostname()} {boot.read_text().strip() if boot.exists() else ''}"
    return _gathered(own)


def _gathered(own: Any) -> list[Any]:
    """Collective. What each rank gives, as JSON: torch's own for objects unpickles."""
    written = torch.tensor(list(json.dumps(own).encode()), dtype=torch.uint8)
    sizes = [torch.empty(1, dtype=torch.int64) for _ in range(dist.get_world_size())]
    dist.all_gather(sizes, torch.tensor([written.numel()]))
    longest = int(max(sizes))
    heard = [torch.empty(longest, dtype=torch.uint8) for _ in sizes]
    dist.all_gather(heard, torch.nn.functional.pad(written, (0, longest - written.numel())))
    return [json.loads(words[:int(size)].numpy().tobytes())
            for words, size in zip(heard, sizes)]
