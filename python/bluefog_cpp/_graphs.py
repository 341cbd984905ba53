"""The graphs of `topology_util`, which `bluefog_cpp.torch` has by the same names.

An edge i -> j with the attribute `weight` means that i sends to j, and that j gives the value that
weight; the loop at a rank holds its self weight. The graphs are built by the C++ core.

The graphs that a name tells (`RingGraph` and its like) have a doubly stochastic W, whose rows and
columns sum to 1; for one rank it is the identity. A size below 1 is an InvalidArgument, an argument
of another type an ArgumentTypeError. Nothing communicates. Source: BlueFog's functions of these
names, where it has them.
"""

import math
import os
from collections.abc import Iterable, Iterator
from typing import Any

import networkx as nx

from bluefog_cpp import _arguments
from bluefog_cpp._arguments import checked as _checked
from bluefog_cpp._extension import core
from bluefog_cpp._matrices import are_equivalent as _are_equivalent
from bluefog_cpp._matrices import graph_of as _graph_of
from bluefog_cpp._matrices import matrix_of as _matrix_of
from bluefog_cpp.errors import ArgumentTypeError, InvalidArgument, UnsupportedError

SendRecvRanks = tuple[list[int], list[int]]

_count = _arguments.at_least(1, 2**31 - 1)
_base = _arguments.at_least(2, 2**31 - 1)


def from_mixing_matrix(matrix: core.MixingMatrix) -> nx.DiGraph:
    """The graph of W: an edge j -> i of weight W(i, j) for each entry, loops for self weights."""
    _checked("from_mixing_matrix", "matrix",
            _arguments.instance_of(core.MixingMatrix, "a MixingMatrix of the core"), matrix)
    return _graph_of(matrix)


def to_mixing_matrix(graph: nx.DiGraph, is_weighted: bool = True) -> core.MixingMatrix:
    """W of a graph over 0 … n - 1; without weights every value counts 1 / (in-degree + 1).

    Raises ArgumentTypeError for another kind of graph or other nodes, InvalidArgument for weights
    that are no finite numbers.
    """
    return _matrix_of("to_mixing_matrix", "graph", graph,
                     _checked("to_mixing_matrix", "is_weighted", _arguments.switch, is_weighted))


def ExponentialTwoGraph(size: int) -> nx.DiGraph:
    """Rank i sends to i + 1, i + 2, i + 4, … (mod size); all weights equal. Its properties:
    arXiv 2110.13363."""
    return from_mixing_matrix(
        core.graphs.exponential(_checked("ExponentialTwoGraph", "size", _count, size), 2))


def ExponentialGraph(size: int, base: int = 2) -> nx.DiGraph:
    """Rank i sends to i + base^k (mod size) for every base^k < size; all weights equal. Raises
    InvalidArgument for a base below 2."""
    call = "ExponentialGraph"
    return from_mixing_matrix(core.graphs.exponential(_checked(call, "size", _count, size),
                                                      _checked(call, "base", _base, base)))


def SymmetricExponentialGraph(size: int, base: int = 4) -> nx.DiGraph:
    """Distances that are powers of the base in both directions, up to half the ring; all weights
    equal. Raises InvalidArgument for a base below 2."""
    call = "SymmetricExponentialGraph"
    return from_mixing_matrix(core.graphs.symmetric_exponential(
        _checked(call, "size", _count, size), _checked(call, "base", _base, base)))


def MeshGrid2DGraph(size: int, shape: tuple[int, int] | None = None) -> nx.DiGraph:
    """A grid of rows and columns (default: the closest factors) that does not wrap around, with
    Metropolis-Hastings weights: 1 / (1 + max(d_i, d_j)) between neighbours of degrees d_i and d_j,
    the rest for self. Raises InvalidArgument where rows times columns is not `size`."""
    call = "MeshGrid2DGraph"
    size = _checked(call, "size", _count, size)
    shape = _checked(call, "shape", _arguments.grid_shape, shape)
    if shape is not None and shape[0] * shape[1] != size:
        raise InvalidArgument(
            f"{_arguments.place(call)}: shape: expected rows and columns whose product "
            f"is {size}, found {shape}")
    return from_mixing_matrix(core.graphs.mesh_2d(size, shape))


def StarGraph(size: int, center_rank: int = 0) -> nx.DiGraph:
    """Everybody exchanges with the centre, each edge of weight 1 / size, the rest for self. Raises
    InvalidArgument for a centre that is no rank."""
    call = "StarGraph"
    size = _checked(call, "size", _count, size)
    return from_mixing_matrix(
        core.graphs.star(size, _checked(call, "center_rank", _arguments.rank(size), center_rank)))


def RingGraph(size: int, connect_style: int = 0) -> nx.DiGraph:
    """connect_style 0: rank i exchanges with i - 1 and i + 1, weights 1/3 (1/2 for two ranks); 1:
    it sends to i - 1 (left), 2: to i + 1 (right), weights 1/2. Raises InvalidArgument for another
    style."""
    call = "RingGraph"
    return from_mixing_matrix(core.graphs.ring(
        _checked(call, "size", _count, size),
        _checked(call, "connect_style", _arguments.at_least(0, 2), connect_style)))


def FullyConnectedGraph(size: int) -> nx.DiGraph:
    """Every weight is 1 / size: one step averages exactly."""
    return from_mixing_matrix(
        core.graphs.fully_connected(_checked("FullyConnectedGraph", "size", _count, size)))


def LazyGraph(topo: nx.DiGraph, self_share: float = 0.5) -> nx.DiGraph:
    """The graph of self_share I + (1 - self_share) W: larger self weights, which keep D² and
    methods with momentum stable. Row sums, column sums and symmetry stay. self_share: from 0 to
    below 1, else InvalidArgument."""
    call = "LazyGraph"
    share = _checked(call, "self_share", _arguments.number, self_share)
    if not 0 <= share < 1:
        raise InvalidArgument(
            f"{_arguments.place(call)}: self_share: expected a number from 0 to below "
            f"1, found {share}")
    return from_mixing_matrix(core.lazy(_matrix_of(call, "topo", topo), share))


def WithoutRanksGraph(topo: nx.DiGraph, ranks: Iterable[int],
                      renumber: bool = False) -> nx.DiGraph:
    """The graph after `ranks` are lost: what others heard through them they hear from each other.
    With S the ranks that are left and D the lost ones, W becomes the stochastic complement
    W_SS + W_SD (I - W_DD)^-1 W_DS: rows keep their sums, in a doubly stochastic W columns too.

    ranks: distinct; not all. renumber: whether those that are left get the numbers 0 … by rising
    rank; else all keep theirs, and a lost one stands alone with the self weight 1. Raises
    InvalidArgument where W has no such complement, as where neither row nor column of a lost rank
    sums to 1. Cost: p q new edges for each lost rank that hears p and is heard by q. Source: C. D.
    Meyer, Stochastic complementation, SIAM Review 31 (1989).
    """
    call = "WithoutRanksGraph"
    matrix = _matrix_of(call, "topo", topo)
    lost = _checked(call, "ranks", _arguments.ranks(-1, matrix.size), ranks)
    if len(lost) == matrix.size:
        raise InvalidArgument(f"{_arguments.place(call)}: ranks: expected fewer than all "
                              f"{matrix.size}, found all")
    left = matrix.without(lost)
    if _checked(call, "renumber", _arguments.switch, renumber):
        left = left.among(sorted(set(range(matrix.size)) - set(lost)))
    return from_mixing_matrix(left)


def EdgeListGraph(path: str | os.PathLike[str], size: int | None = None) -> nx.DiGraph:
    """The graph of a file of lines `i j [weight]`, as `bftopo` reads it: i sends to j, which gives
    that weight; `i i weight` is a self weight. Without weights each rank gives 1 / (in-degree + 1).

    size: the number of ranks; default: the highest of the file + 1. Raises InvalidArgument naming
    file and line.
    """
    call = "EdgeListGraph"
    file = _checked(call, "path", _arguments.path, path)
    count = 0 if size is None else _checked(call, "size", _count, size)
    return from_mixing_matrix(core.load_edge_list(file, count))


def IsTopologyEquivalent(topo1: nx.DiGraph | None, topo2: nx.DiGraph | None) -> bool:
    """Whether both have the same nodes and the same edges with the same weights; False for None."""
    for argument, topo in (("topo1", topo1), ("topo2", topo2)):
        if topo is not None:
            _checked("IsTopologyEquivalent", argument, _arguments.digraph, topo)
    return topo1 is not None and topo2 is not None and _are_equivalent(topo1, topo2)


def IsRegularGraph(topo: nx.DiGraph) -> bool:
    """Whether all nodes have the same degree: edges in and out together, a loop counted as both."""
    _checked("IsRegularGraph", "topo", _arguments.digraph, topo)
    return len({degree for _, degree in topo.degree}) <= 1


def GetRecvWeights(topo: nx.DiGraph, rank: int) -> tuple[float, dict[int, float]]:
    """The self weight of `rank` (0 without a loop), and the weights that it gives to those it
    hears, by rising rank; 1 for edges without one. Raises InvalidArgument for a rank that is no
    node."""
    rank = _node_of("GetRecvWeights", topo, rank)
    weights = {i: topo.edges[i, rank].get("weight", 1.0) for i in topo.predecessors(rank)}
    return weights.pop(rank, 0.0), dict(sorted(weights.items()))


def GetSendWeights(topo: nx.DiGraph, rank: int) -> tuple[float, dict[int, float]]:
    """The self weight of `rank` (0 without a loop), and the weights that those who hear it give to
    its value, by rising rank; 1 for edges without one. Raises InvalidArgument for a rank that is no
    node."""
    rank = _node_of("GetSendWeights", topo, rank)
    weights = {j: topo.edges[rank, j].get("weight", 1.0) for j in topo.successors(rank)}
    return weights.pop(rank, 0.0), dict(sorted(weights.items()))


def draw(topo: nx.DiGraph, axes: Any = None, weights: bool = False) -> Any:
    """Draws the ranks on a circle with their edges, rank 0 on top, the others clockwise.

    axes: of matplotlib; default: those of a new figure. weights: writes them on the edges. Returns
    the axes: `draw(graph).figure.savefig("graph.png")`. Raises ArgumentTypeError for anything but a
    DiGraph over 0 … n - 1, and UnsupportedError where matplotlib is not installed.
    """
    _checked("draw", "topo", _arguments.graph, topo)
    _checked("draw", "weights", _arguments.switch, weights)
    if axes is not None and not hasattr(axes, "set_axis_off"):
        raise ArgumentTypeError(
            f"{_arguments.place('draw')}: axes: expected axes of matplotlib or None, "
            f"found {_arguments.shown(axes)}")
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
    """Endless: each rank sends to one of its out-neighbours by turns, clockwise from itself.

    Yields for each step the ranks that `self_rank` sends to, at most one, and those that it hears,
    for `dst_weights` and `src_weights` of `neighbor_allreduce`. Raises InvalidArgument, at the
    call, for a `self_rank` that is no node.
    """
    call = "GetDynamicOnePeerSendRecvRanks"
    graph = _matrix_of(call, "topo", topo)
    return _steps_of(core.one_peer(graph),
                     _checked(call, "self_rank", _arguments.rank(graph.size), self_rank))


def GetInnerOuterRingDynamicSendRecvRanks(world_size: int, local_size: int,
                                          self_rank: int) -> Iterator[SendRecvRanks]:
    """Endless: in step t local rank t mod local_size sends to the next machine's, the others go
    round inside theirs, leaving that one out. Yields as `GetDynamicOnePeerSendRecvRanks`.

    Raises InvalidArgument where `local_size` is below 3 or does not divide `world_size`, or
    `self_rank` is none.
    """
    return _steps_between_machines("GetInnerOuterRingDynamicSendRecvRanks", "inner-outer-ring",
                                   world_size, local_size, self_rank)


def GetInnerOuterExpo2DynamicSendRecvRanks(world_size: int, local_size: int,
                                           self_rank: int) -> Iterator[SendRecvRanks]:
    """Endless: as `GetInnerOuterRingDynamicSendRecvRanks`, with distances that are powers of two
    inside and between machines, of which there are 2 or more."""
    return _steps_between_machines("GetInnerOuterExpo2DynamicSendRecvRanks",
                                   "inner-outer-exponential",
                                   world_size, local_size, self_rank)


def GetExp2DynamicSendRecvMachineRanks(world_size: int, local_size: int, self_rank: int,
                                       local_rank: int) -> Iterator[SendRecvRanks]:
    """Endless, in machine ranks: in step t machine m sends to m + 2^(t mod τ), τ = ⌈log₂ machines⌉.

    Yields the machines that this rank's sends to and those that it hears, for
    `hierarchical_neighbor_allreduce`. One machine alone sends to nobody. Raises InvalidArgument
    where `local_size` does not divide `world_size`, or `local_rank` is not that of `self_rank`.
    """
    call = "GetExp2DynamicSendRecvMachineRanks"
    world_size, local_size, self_rank = _machines(call, world_size, local_size, self_rank)
    local_rank = _checked(call, "local_rank", _arguments.rank(local_size), local_rank)
    if self_rank % local_size != local_rank:
        raise InvalidArgument(
            f"{_arguments.place(call)}: local_rank: expected {self_rank % local_size}, that of "
            f"rank {self_rank} on machines of {local_size}, found {local_rank}")
    return _machine_steps(world_size // local_size, self_rank // local_size)


def _node_of(call: str, topo: nx.DiGraph, rank: Any) -> int:
    _checked(call, "topo", _arguments.graph, topo)
    return _checked(call, "rank", _arguments.rank(topo.number_of_nodes()), rank)


def _machines(call: str, world_size: Any, local_size: Any,
              self_rank: Any) -> tuple[int, int, int]:
    world_size = _checked(call, "world_size", _count, world_size)
    local_size = _checked(call, "local_size", _count, local_size)
    if world_size % local_size != 0:
        raise InvalidArgument(
            f"{_arguments.place(call)}: local_size: expected a divisor of {world_size}, "
            f"found {local_size}")
    return world_size, local_size, _checked(call, "self_rank", _arguments.rank(world_size),
                                            self_rank)


def _steps_between_machines(call: str, family: str, world_size: Any, local_size: Any,
                            self_rank: Any) -> Iterator[SendRecvRanks]:
    world_size, local_size, self_rank = _machines(call, world_size, local_size, self_rank)
    try:
        schedule = core.make_schedule(family, world_size, local_size)
    except InvalidArgument as error:  # machines that are too small for it
        raise InvalidArgument(f"{_arguments.place(call)}: {error}") from None
    return _steps_of(schedule, self_rank)


def _steps_of(schedule: core.Schedule, rank: int) -> Iterator[SendRecvRanks]:
    step = 0
    while True:
        plan = schedule.plan_for(rank, step)
        yield plan.dst_ranks, plan.src_ranks
        step = (step + 1) % schedule.period_steps


def _machine_steps(machines: int, machine: int) -> Iterator[SendRecvRanks]:
    period = max(1, math.ceil(math.log2(machines)))
    step = 0
    while True:
        distance = 2 ** (step % period)
        yield (([(machine + distance) % machines], [(machine - distance) % machines])
               if machines > 1 else ([], []))
        step += 1
