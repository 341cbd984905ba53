"""Graphs over ranks, as networkx.DiGraph.

An edge i -> j with the attribute `weight` means that i sends to j, and that j gives the value that
weight; the loop at a rank holds its self weight. The graphs are built by the C++ core.
"""

import math
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional, Tuple

import networkx as nx

from bluefog_cpp._extension import core
from bluefog_cpp.errors import InvalidArgument, UnsupportedError

if TYPE_CHECKING:
    from bluefog_cpp.torch._inference import RanksAndMatrix

SendRecvRanks = Tuple[List[int], List[int]]


def from_mixing_matrix(matrix: core.MixingMatrix) -> nx.DiGraph:
    """The graph of W: an edge j -> i of weight W(i, j) for each entry."""
    graph = nx.DiGraph()
    graph.add_nodes_from(range(matrix.size))
    graph.add_weighted_edges_from(matrix.edges)
    return graph


def to_mixing_matrix(graph: nx.DiGraph, is_weighted: bool = True) -> core.MixingMatrix:
    """W of a graph over 0 … n - 1; without weights every value counts 1 / (in-degree + 1).

    Raises TypeError for another kind of graph or other nodes, InvalidArgument for weights that are
    no finite numbers.
    """
    if not isinstance(graph, nx.DiGraph):
        raise TypeError(f"expected a networkx.DiGraph, found {type(graph).__name__}")
    size = graph.number_of_nodes()
    if set(graph.nodes) != set(range(size)):
        raise TypeError(f"expected the nodes to be the ranks 0 … {size - 1}, found {list(graph.nodes)}")
    if is_weighted:
        edges = [(i, j, float(weight)) for i, j, weight in graph.edges.data("weight", default=1.0)]
        return core.MixingMatrix(size, edges)
    return core.MixingMatrix.uniform(size, [(i, j, 1.0) for i, j in graph.edges if i != j])


def ExponentialTwoGraph(size: int) -> nx.DiGraph:
    """Rank i sends to i + 1, i + 2, i + 4, … (mod size); all weights equal."""
    return ExponentialGraph(size, base=2)


def ExponentialGraph(size: int, base: int = 2) -> nx.DiGraph:
    """Rank i sends to i + base^k (mod size) for every base^k < size; all weights equal."""
    return from_mixing_matrix(core.graphs.exponential(size, base))


def SymmetricExponentialGraph(size: int, base: int = 4) -> nx.DiGraph:
    """Distances that are powers of the base in both directions, up to half the ring."""
    return from_mixing_matrix(core.graphs.symmetric_exponential(size, base))


def MeshGrid2DGraph(size: int, shape: Optional[Tuple[int, int]] = None) -> nx.DiGraph:
    """A grid of rows and columns (default: the closest factors), Metropolis-Hastings weights."""
    return from_mixing_matrix(core.graphs.mesh_2d(size, shape))


def StarGraph(size: int, center_rank: int = 0) -> nx.DiGraph:
    """Everybody exchanges with the centre, each edge of weight 1 / size."""
    return from_mixing_matrix(core.graphs.star(size, center_rank))


def RingGraph(size: int, connect_style: int = 0) -> nx.DiGraph:
    """connect_style 0: both neighbours, weights 1/3; 1: to the left, 2: to the right, weights 1/2."""
    return from_mixing_matrix(core.graphs.ring(size, connect_style))


def FullyConnectedGraph(size: int) -> nx.DiGraph:
    """Every weight is 1 / size: one step averages exactly."""
    return from_mixing_matrix(core.graphs.fully_connected(size))


def IsTopologyEquivalent(topo1: Optional[nx.DiGraph], topo2: Optional[nx.DiGraph]) -> bool:
    """Whether both have the same nodes and the same edges with the same weights."""
    if topo1 is None or topo2 is None or set(topo1.nodes) != set(topo2.nodes):
        return False
    first, second = ({(i, j): weight for i, j, weight in topo.edges.data("weight", default=1.0)}
                     for topo in (topo1, topo2))
    return first == second


def IsRegularGraph(topo: nx.DiGraph) -> bool:
    """Whether all nodes have the same degree."""
    return len({degree for _, degree in topo.degree}) <= 1


def GetRecvWeights(topo: nx.DiGraph, rank: int) -> Tuple[float, Dict[int, float]]:
    """The self weight of `rank`, and the weights that it gives to those it hears."""
    weights = {i: topo.edges[i, rank].get("weight", 1.0) for i in topo.predecessors(rank)}
    return weights.pop(rank, 0.0), dict(sorted(weights.items()))


def GetSendWeights(topo: nx.DiGraph, rank: int) -> Tuple[float, Dict[int, float]]:
    """The self weight of `rank`, and the weights that those who hear it give to its value."""
    weights = {j: topo.edges[rank, j].get("weight", 1.0) for j in topo.successors(rank)}
    return weights.pop(rank, 0.0), dict(sorted(weights.items()))


def draw(topo: nx.DiGraph, axes: Any = None, weights: bool = False) -> Any:
    """Draws the ranks on a circle with their edges, rank 0 on top, the others clockwise.

    axes: of matplotlib; default: those of a new figure. weights: writes them on the edges. Returns the
    axes: `draw(graph).figure.savefig("graph.png")`. Raises TypeError for anything but a DiGraph, and
    UnsupportedError where matplotlib is not installed.
    """
    to_mixing_matrix(topo, is_weighted=False)
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise UnsupportedError("draw expects matplotlib, which is not installed: pip install "
                               "matplotlib") from error
    if axes is None:
        axes = pyplot.figure().add_subplot()
    size = topo.number_of_nodes()
    places = {rank: (math.sin(2 * math.pi * rank / size), math.cos(2 * math.pi * rank / size))
              for rank in range(size)}
    edges = [(i, j) for i, j in topo.edges if i != j]
    # An edge that has a counterpart bends, so that both are seen.
    nx.draw_networkx_nodes(topo, places, ax=axes, node_color="lightsteelblue")
    nx.draw_networkx_labels(topo, places, ax=axes)
    for style, chosen in (("arc3,rad=0.15", [e for e in edges if topo.has_edge(*e[::-1])]),
                          ("arc3", [e for e in edges if not topo.has_edge(*e[::-1])])):
        nx.draw_networkx_edges(topo, places, edgelist=chosen, ax=axes, connectionstyle=style)
        if weights and chosen:
            texts = {edge: f"{topo.edges[edge].get('weight', 1.0):.3g}" for edge in chosen}
            nx.draw_networkx_edge_labels(topo, places, texts, ax=axes, connectionstyle=style)
    axes.set_aspect("equal")
    axes.set_axis_off()
    return axes


def GetDynamicOnePeerSendRecvRanks(topo: nx.DiGraph, self_rank: int) -> Iterator[SendRecvRanks]:
    """Endless: each rank sends to one of its out-neighbours by turns, clockwise from itself."""
    return _steps_of(core.one_peer(to_mixing_matrix(topo)), self_rank)


def GetInnerOuterRingDynamicSendRecvRanks(world_size: int, local_size: int,
                                          self_rank: int) -> Iterator[SendRecvRanks]:
    """Endless: in step t local rank t mod local_size goes to the next machine, the others go round
    inside theirs."""
    return _steps_of(core.make_schedule("inner-outer-ring", world_size, local_size), self_rank)


def GetInnerOuterExpo2DynamicSendRecvRanks(world_size: int, local_size: int,
                                           self_rank: int) -> Iterator[SendRecvRanks]:
    """Endless: as the ring, with distances that are powers of two inside and between machines."""
    return _steps_of(core.make_schedule("inner-outer-exponential", world_size, local_size), self_rank)


def GetExp2DynamicSendRecvMachineRanks(world_size: int, local_size: int, self_rank: int,
                                       local_rank: int) -> Iterator[SendRecvRanks]:
    """Endless, in machine ranks: in step t machine m sends to m + 2^(t mod τ), τ = ⌈log₂ machines⌉.

    One machine alone sends to nobody."""
    if local_size < 1 or world_size % local_size != 0:
        raise InvalidArgument(f"expected machines of {local_size} ranks to make up {world_size} ranks")
    if self_rank % local_size != local_rank:
        raise InvalidArgument(f"expected rank {self_rank} to have local rank {self_rank % local_size} on "
                              f"machines of {local_size}, found {local_rank}")
    return _machine_steps(world_size // local_size, self_rank // local_size)


def InferSourceFromDestinationRanks(dst_ranks: List[int],
                                    construct_adjacency_matrix: bool = False) -> "RanksAndMatrix":
    """Collective, after `bluefog_cpp.torch.init`. See `bluefog_cpp.torch`."""
    from bluefog_cpp.torch import InferSourceFromDestinationRanks as infer
    return infer(dst_ranks, construct_adjacency_matrix)


def InferDestinationFromSourceRanks(src_ranks: List[int],
                                    construct_adjacency_matrix: bool = False) -> "RanksAndMatrix":
    """Collective, after `bluefog_cpp.torch.init`. See `bluefog_cpp.torch`."""
    from bluefog_cpp.torch import InferDestinationFromSourceRanks as infer
    return infer(src_ranks, construct_adjacency_matrix)


def _steps_of(schedule, rank):
    step = 0
    while True:
        plan = schedule.plan_for(rank, step)
        yield plan.dst_ranks, plan.src_ranks
        step = (step + 1) % schedule.period_steps


def _machine_steps(machines, machine):
    period = max(1, math.ceil(math.log2(machines)))
    step = 0
    while True:
        distance = 2 ** (step % period)
        yield (([(machine + distance) % machines], [(machine - distance) % machines])
               if machines > 1 else ([], []))
        step += 1
