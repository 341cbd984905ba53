"""Who sends to whom, when each rank knows only one side. Collective.

Cost: an `allgather` of 4 bytes for each rank that is named. Both raise InvalidArgument for a rank
that is none, this rank itself, or one named twice, and PeerFailure on the other ranks then. Source:
BlueFog's functions of these names.
"""

from collections.abc import Sequence
from typing import Any

import numpy

from bluefog_cpp import _arguments
from bluefog_cpp._extension import core
from bluefog_cpp.torch._runtime import current

Matrix = numpy.ndarray[Any, Any]
RanksAndMatrix = list[int] | tuple[list[int], Matrix]


def InferSourceFromDestinationRanks(dst_ranks: Sequence[int],
                                    construct_adjacency_matrix: bool = False) -> RanksAndMatrix:
    """Collective. The ranks that send to this one, rising, where each rank knows `dst_ranks`, those
    it sends to.

    construct_adjacency_matrix: returns also the matrix A, of float64 and shape [n, n], with
    A[i, j] > 0 where i sends to j or i = j; the values of a column are equal and sum to 1.
    """
    sends = _gathered("InferSourceFromDestinationRanks", "dst_ranks", dst_ranks,
                      construct_adjacency_matrix)
    return _answer(sends, sends[:, current().rank], construct_adjacency_matrix)


def InferDestinationFromSourceRanks(src_ranks: Sequence[int],
                                    construct_adjacency_matrix: bool = False) -> RanksAndMatrix:
    """Collective. The ranks that this one is to send to, rising, where each rank knows `src_ranks`,
    those it hears. The matrix is that of `InferSourceFromDestinationRanks`."""
    sends = _gathered("InferDestinationFromSourceRanks", "src_ranks", src_ranks,
                      construct_adjacency_matrix).T
    return _answer(sends, sends[current().rank], construct_adjacency_matrix)


def _gathered(call: str, what: str, ranks: Any, construct_adjacency_matrix: Any) -> Matrix:
    """Row i marks the ranks that rank i named."""
    runtime = current()
    own = runtime.argument(call, what, _arguments.ranks(runtime.rank, runtime.size), ranks)
    runtime.argument(call, "construct_adjacency_matrix", _arguments.switch,
                     construct_adjacency_matrix)
    sends = numpy.zeros((runtime.size, runtime.size), dtype=numpy.uint8)
    texts = core.gather_bytes(runtime.context, call, numpy.array(own, dtype="<i4").tobytes())
    for rank, text in enumerate(texts):
        sends[rank, numpy.frombuffer(text, dtype="<i4")] = 1
    return sends


def _answer(sends: Matrix, marks: Matrix, construct_adjacency_matrix: bool) -> RanksAndMatrix:
    ranks = [int(rank) for rank in numpy.flatnonzero(marks)]
    if not construct_adjacency_matrix:
        return ranks
    with_self = sends.astype(float) + numpy.eye(len(sends))
    return ranks, with_self / with_self.sum(axis=0)
