"""Between the graphs of users and the matrices of the core."""

import networkx as nx

from bluefog_cpp import _arguments
from bluefog_cpp._arguments import checked
from bluefog_cpp._extension import core


def matrix_of(call: str, argument: str, graph: nx.DiGraph,
              is_weighted: bool = True) -> core.MixingMatrix:
    """`topology_util.to_mixing_matrix` of an argument of a call, which errors name."""
    checked(call, argument, _arguments.graph, graph)
    size = graph.number_of_nodes()
    if is_weighted:
        edges = []
        for i, j, weight in graph.edges.data("weight", default=1.0):
            edges.append((i, j, checked(call, f"{argument}, weight of the edge {i} -> {j}",
                                        _arguments.number, weight)))
        return core.MixingMatrix(size, edges)
    return core.MixingMatrix.uniform(size, [(i, j, 1.0) for i, j in graph.edges if i != j])


def graph_of(matrix: core.MixingMatrix) -> nx.DiGraph:
    """`topology_util.from_mixing_matrix` of what the core has made."""
    graph = nx.DiGraph()
    graph.add_nodes_from(range(matrix.size))
    graph.add_weighted_edges_from(matrix.edges)
    return graph


def default_graph(size: int) -> nx.DiGraph:
    """The graph over `size` ranks where nobody has asked for one: the exponential graph, base 2."""
    return graph_of(core.graphs.exponential(size))


def are_equivalent(first: nx.DiGraph, second: nx.DiGraph) -> bool:
    """Whether both have the same nodes and the same edges with the same weights."""
    if first.is_multigraph() != second.is_multigraph() or set(first.nodes) != set(second.nodes):
        return False
    mine, theirs = ({(i, j): weight for i, j, weight in graph.edges.data("weight", default=1.0)}
                    for graph in (first, second))
    return mine == theirs
