"""The uses of a rank's time in a step."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.pipelining import PipelineStage


@dataclass
class StepTimes:
    """A rank's time in a step by its uses, in seconds, and what it has moved; what belongs to the
    all-reduce is 0 with one pipeline."""

    forward: float = 0.0
    """Forward passes."""
    backward: float = 0.0
    """Backward passes."""
    waiting: float = 0.0
    """The rest of torch's schedule: waits for other stages, the bubble."""
    averaging: float = 0.0
    """The all-reduce with the replicas, as far as nothing else of the step hides it."""
    averaging_whole: float = 0.0
    """The same from its begin, in the last backward pass, to its end."""
    optimizer: float = 0.0
    """The local step."""
    total: float = 0.0
    """Of the call."""
    stage_bytes: int = 0
    """Bytes of activations and their gradients that the rank has sent."""
    averaged_bytes: int = 0
    """Bytes that it has brought to the all-reduce."""
    averaged_parameters: int = 0
    """The number of parameters in the all-reduce."""
    machine_syncs: int = 0
    """Messages to ranks of other machines, and all-reduces with some."""

    @contextmanager
    def part(self, use: str, name: str) -> Iterator[None]:
        """Adds the time that passes to the field `use`; torch.profiler shows it as `name`."""
        begin = time.perf_counter()
        try:
            with torch.profiler.record_function(f"pipeline {name}"):
                yield
        finally:
            setattr(self, use, getattr(self, use) + time.perf_counter() - begin)


class TimedStage(PipelineStage):
    """torch's stage, whose passes and messages are counted in `times`, and which calls
    `on_last_backward` before the last backward pass of a step."""

    times = StepTimes()
    on_last_backward: Callable[[], None] | None = None
    has_far_neighbors: tuple[bool, bool] = (False, False)
    """Whether the stage before, and the one behind, is on another machine."""

    def forward_one_chunk(self, fwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
        with self.times.part("forward", f"forward {fwd_chunk_id}"):
            output = super().forward_one_chunk(fwd_chunk_id, *args, **kwargs)
        if not self.is_last:
            self.times.stage_bytes += output.nbytes
            self.times.machine_syncs += self.has_far_neighbors[1]
        return output

    def backward_one_chunk(self, bwd_chunk_id: int, *args: Any, **kwargs: Any) -> None:
        is_last = self.chunks is not None and bwd_chunk_id == self.chunks - 1
        if is_last and self.on_last_backward is not None:
            self.on_last_backward()
        with self.times.part("backward", f"backward {bwd_chunk_id}"):
            super().backward_one_chunk(bwd_chunk_id, *args, **kwargs)
        if not self.is_first:
            self.times.stage_bytes += sum(
                gradient.nbytes for gradient in self.bwd_cache.get(bwd_chunk_id, ())
                if gradient is not None)
            self.times.machine_syncs += self.has_far_neighbors[0]
