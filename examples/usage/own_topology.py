"""A graph of one's own, here a line of ranks, with weights by Metropolis and Hastings' rule."""

import networkx
import torch

import bluefog_cpp.torch as bf

bf.init()
line = networkx.path_graph(bf.size())
graph = networkx.DiGraph()
for rank in line:
    shares = {other: 1 / (1 + max(line.degree[rank], line.degree[other])) for other in line[rank]}
    graph.add_edge(rank, rank, weight=1 - sum(shares.values()))
    for other, share in shares.items():
        graph.add_edge(other, rank, weight=share)  # `other` sends to `rank`
bf.set_topology(graph, is_weighted=True)

x = torch.full((1000,), float(bf.rank()))
for _ in range(100):
    x = bf.neighbor_allreduce(x, name="x")
print(f"rank {bf.rank()}: {x[0]:g}")
