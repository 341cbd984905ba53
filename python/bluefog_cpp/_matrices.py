"""From a graph that a user gave to the matrix of the core."""

import networkx as nx

from bluefog_cpp import _arguments
from bluefog_cpp._arguments import checked
from bluefog_cpp._extension import core


def matrix_of(call: str, argument: str, graph: nx.DiGraph, is_weighted: bool = True) -> core.MixingMatrix:
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
