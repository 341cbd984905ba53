"""Graphs over ranks, as networkx.DiGraph.

An edge i -> j with the attribute `weight` means that i sends to j, and that j gives the value that
weight; the loop at a rank holds its self weight. The graphs are built by the C++ core.
"""

from typing import TYPE_CHECKING

from bluefog_cpp._graphs import (
    EdgeListGraph,
    ExponentialGraph,
    ExponentialTwoGraph,
    FullyConnectedGraph,
    GetDynamicOnePeerSendRecvRanks,
    GetExp2DynamicSendRecvMachineRanks,
    GetInnerOuterExpo2DynamicSendRecvRanks,
    GetInnerOuterRingDynamicSendRecvRanks,
    GetRecvWeights,
    GetSendWeights,
    IsRegularGraph,
    IsTopologyEquivalent,
    LazyGraph,
    MeshGrid2DGraph,
    RingGraph,
    StarGraph,
    SymmetricExponentialGraph,
    WithoutRanksGraph,
    draw,
    from_mixing_matrix,
    to_mixing_matrix,
)

if TYPE_CHECKING:
    from bluefog_cpp.torch._inference import RanksAndMatrix

__all__ = [
    "EdgeListGraph", "ExponentialGraph", "ExponentialTwoGraph", "FullyConnectedGraph",
    "GetDynamicOnePeerSendRecvRanks", "GetExp2DynamicSendRecvMachineRanks",
    "GetInnerOuterExpo2DynamicSendRecvRanks", "GetInnerOuterRingDynamicSendRecvRanks",
    "GetRecvWeights", "GetSendWeights", "InferDestinationFromSourceRanks",
    "InferSourceFromDestinationRanks", "IsRegularGraph", "IsTopologyEquivalent", "LazyGraph",
    "MeshGrid2DGraph", "RingGraph", "StarGraph", "SymmetricExponentialGraph", "WithoutRanksGraph",
    "draw", "from_mixing_matrix", "to_mixing_matrix",
]


def InferSourceFromDestinationRanks(dst_ranks: list[int],
                                    construct_adjacency_matrix: bool = False) -> "RanksAndMatrix":
    """Collective, after `bluefog_cpp.torch.init`. See `bluefog_cpp.torch`."""
    from bluefog_cpp.torch import InferSourceFromDestinationRanks as infer
    return infer(dst_ranks, construct_adjacency_matrix)


def InferDestinationFromSourceRanks(src_ranks: list[int],
                                    construct_adjacency_matrix: bool = False) -> "RanksAndMatrix":
    """Collective, after `bluefog_cpp.torch.init`. See `bluefog_cpp.torch`."""
    from bluefog_cpp.torch import InferDestinationFromSourceRanks as infer
    return infer(src_ranks, construct_adjacency_matrix)
