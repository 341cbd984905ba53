"""Who sends to whom, when each rank knows only one side. Collective."""

from typing import List, Sequence, Tuple, Union

import numpy
import torch

from bluefog_cpp.errors import InvalidArgument
from bluefog_cpp.torch._collectives import allgather
from bluefog_cpp.torch._runtime import current

RanksAndMatrix = Union[List[int], Tuple[List[int], numpy.ndarray]]


def InferSourceFromDestinationRanks(dst_ranks: Sequence[int],
                                    construct_adjacency_matrix: bool = False) -> RanksAndMatrix:
    """Collective. The ranks that send to this one, rising, where each rank knows `dst_ranks`, those
    it sends to.

    construct_adjacency_matrix: returns also the matrix A with A[i, j] > 0 where i sends to j or
    i = j; the values of a column are equal and sum to 1.
    """
    sends = _gathered(dst_ranks, "dst_ranks")
    return _answer(sends, sends[:, current().rank], construct_adjacency_matrix)


def InferDestinationFromSourceRanks(src_ranks: Sequence[int],
                                    construct_adjacency_matrix: bool = False) -> RanksAndMatrix:
    """Collective. The ranks that this one is to send to, rising, where each rank knows `src_ranks`,
    those it hears. The matrix is as above."""
    sends = _gathered(src_ranks, "src_ranks").T
    return _answer(sends, sends[current().rank], construct_adjacency_matrix)


def _gathered(ranks, what) -> numpy.ndarray:
    """Row i marks the ranks that rank i named."""
    runtime = current()
    ranks = list(ranks)

    def row():
        wrong = [r for r in ranks if not 0 <= r < runtime.size or r == runtime.rank]
        if wrong or len(set(ranks)) != len(ranks):
            raise InvalidArgument(f"rank {runtime.rank}, {what}: expected different other ranks below "
                                  f"{runtime.size}, found {ranks}")
        marks = torch.zeros(1, runtime.size, dtype=torch.uint8)
        marks[0, ranks] = 1
        return marks

    return allgather(runtime.or_refuse(row), name=what).numpy()


def _answer(sends, marks, construct_adjacency_matrix) -> RanksAndMatrix:
    ranks = [int(rank) for rank in numpy.flatnonzero(marks)]
    if not construct_adjacency_matrix:
        return ranks
    with_self = sends.astype(float) + numpy.eye(len(sends))
    return ranks, with_self / with_self.sum(axis=0)
