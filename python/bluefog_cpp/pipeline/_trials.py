"""The choice of the number of micro-batches by trial."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from bluefog_cpp.pipeline._agreement import agree

if TYPE_CHECKING:
    from bluefog_cpp.pipeline._elastic import ElasticPipeline


def choose_micro_batches(pipeline: "ElasticPipeline", inputs: torch.Tensor | None,
                         targets: torch.Tensor | None, rows: int, all_rows: int | None = None,
                         candidates: Sequence[int] = ()) -> int:
    """Collective. Tries the passes of a batch with each number of micro-batches, twice, and stays
    with the one whose second trial takes least time on the slowest rank. Gradients are cleared
    afterwards, buffers are what they were; layers that draw random numbers draw some.

    inputs, targets, rows, all_rows: as of `ElasticPipeline.step`. candidates: none: 1, 2, 4 and 8
    times the number of stages. Micro-batches have equal rows: of each candidate the largest number
    below it that divides them.
    Returns the candidate, the same on all ranks, which `step` takes from now on.
    Raises InvalidArgument for a candidate below 1 (PeerFailure on the other ranks), MismatchError
    for candidates that differ, and as `step`.
    """
    tried = list(candidates) or [pipeline.stages * factor for factor in (1, 2, 4, 8)]
    least = min(tried)
    agree("" if least >= 1 else
          f"ElasticPipeline: expected at least 1 micro-batch, found {least}",
          [f"trials of {tried} micro-batches"])
    buffers = [(buffer, buffer.detach().clone()) for layer in pipeline.layers_of(pipeline.stage)
               for buffer in pipeline._layers.model[layer].buffers()]
    seconds = torch.zeros(len(tried), dtype=torch.float64)
    for place, count in enumerate(tried):
        _take(pipeline, count)
        pipeline.compute_gradients(inputs, targets, rows, all_rows)  # the first one allocates
        pipeline.compute_gradients(inputs, targets, rows, all_rows)
        seconds[place] = pipeline.times.total
    dist.all_reduce(seconds, dist.ReduceOp.MAX)
    for buffer, before in buffers:
        buffer.copy_(before)
    for _, parameter in pipeline.trained_parameters():
        parameter.grad = None
    best = tried[int(seconds.argmin())]
    _take(pipeline, best)
    return best


def _take(pipeline: "ElasticPipeline", most: int) -> None:
    pipeline._wanted_micro_batches = most
    pipeline._runs.clear()  # torch's schedules are made for their number
