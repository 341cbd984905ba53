"""What the part within a host takes of an average between hosts: a ring of ranks on two hosts, its
edges between the hosts alone, and its edges within them alone, as messages and in place.

    bfrun -np 4 -H host1:2,host2:2 python benchmarks/local_part_benchmark.py

As root, two hosts that are network namespaces of this machine, with links of 1 Gbit/s:

    tests/hosts/netns.sh -n 2 -r 1000mbit -- build/release/tools/bfrun/bfrun -np 4 \
        -H bfhost1:2,bfhost2:2 -x PYTHONPATH python benchmarks/local_part_benchmark.py

Rank 0 prints a line for each size: medians of ms, of the slowest rank of each call, the four by
turns.
"""

import argparse
import statistics
import time

import networkx as nx
import torch

import bluefog_cpp.torch as bf

TURNS = 3
BYTES_OF_A_TURN = 48 << 20
WAYS: dict[str, tuple[tuple[bool, ...], str]] = {
    # which edges: within hosts, between hosts
    "ring": ((True, False), "auto"), "between": ((False,), "auto"),
    "within, messages": ((True,), "neighbours"), "within, in place": ((True,), "component")}


def graph_of(is_within: tuple[bool, ...]) -> "nx.DiGraph[int]":
    """The ring's edges of these kinds, both ways, with equal weights."""
    size, local = bf.size(), bf.local_size()
    ring = [(rank, (rank + 1) % size) for rank in range(size)]
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from(range(size))
    for one, other in ring:
        if (one // local == other // local) in is_within:
            graph.add_edges_from([(one, other), (other, one)])
    for rank in range(size):
        sources = list(graph.predecessors(rank))
        graph.add_edge(rank, rank)
        for source in [rank, *sources]:
            graph[source][rank]["weight"] = 1 / (len(sources) + 1)
    return graph


def time_of(values: torch.Tensor, synchronisation: str) -> float:
    """Seconds of the slowest rank in a call; collective."""
    bf.barrier()
    begun = time.perf_counter()
    bf.neighbor_allreduce_(values, synchronisation=synchronisation)
    own = torch.tensor([time.perf_counter() - begun], dtype=torch.float64)
    return float(bf.allgather(own).max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, nargs="+", default=[1, 16], help="of each rank's buffer")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    bf.init()
    for mib in arguments.mib:
        values = bf.shared_zeros(mib << 18)
        found: dict[str, list[float]] = {name: [] for name in WAYS}
        for _ in range(TURNS):
            for name, (is_within, synchronisation) in WAYS.items():
                bf.set_topology(graph_of(is_within))
                time_of(values, synchronisation)
                found[name] += [time_of(values, synchronisation)
                                for _ in range(max(3, BYTES_OF_A_TURN // (mib << 20)))]
        if bf.rank() == 0:
            print(f"{mib} MiB, ms:", ", ".join(
                f"{name} {1e3 * statistics.median(times):.2f}" for name, times in found.items()),
                flush=True)
    bf.shutdown()


if __name__ == "__main__":
    main()
