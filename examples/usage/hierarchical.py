"""Averages inside each machine, then between machines, which exchange 1/L of the bytes per rank.

BLUEFOG_NODES_PER_MACHINE=2 makes machines of two ranks each on one host.
"""

import torch

import bluefog_cpp.torch as bf
from bluefog_cpp import topology_util

bf.init()
bf.set_machine_topology(topology_util.RingGraph(bf.machine_size()))
x = torch.full((1000,), float(bf.rank()))
for _ in range(50):
    x = bf.hierarchical_neighbor_allreduce(x, name="x")
print(f"rank {bf.rank()}: {x[0]:g}")
