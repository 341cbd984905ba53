"""The calls of BlueFog's programs, in the way that they make them."""

import networkx as nx
import numpy
import pytest
import torch

import bluefog_cpp
import bluefog_cpp.torch as bf
from bluefog_cpp import topology_util, util
from conftest import needs

GRAPHS = ("ExponentialTwoGraph", "ExponentialGraph", "SymmetricExponentialGraph", "MeshGrid2DGraph",
          "StarGraph", "RingGraph", "FullyConnectedGraph", "IsTopologyEquivalent", "IsRegularGraph",
          "GetRecvWeights", "GetSendWeights", "GetDynamicOnePeerSendRecvRanks",
          "GetExp2DynamicSendRecvMachineRanks", "GetInnerOuterRingDynamicSendRecvRanks",
          "GetInnerOuterExpo2DynamicSendRecvRanks")


@pytest.mark.parametrize("name", GRAPHS)
def test_graphs_by_their_short_name(name):
    assert getattr(bf, name) is getattr(topology_util, name)


def test_check_extension():
    assert bf.check_extension is util.check_extension
    assert bf.check_extension("bluefog_cpp.torch", __file__, "mpi_lib") is None


@pytest.mark.parametrize("number", (0, 1, numpy.int64(1)))
def test_switches_as_numbers(number, size):
    assert bf.set_topology(topology_util.RingGraph(size), number)
    assert bf.is_topo_weighted() is bool(number)
    assert bf.allreduce(torch.ones(1), number).item() == (1 if number else size)


@pytest.mark.parametrize("call", (
    bf.set_topology, bf.set_machine_topology, topology_util.IsRegularGraph,
    lambda graph: bf.init(lambda size: graph)))
def test_undirected_graphs(call, size):
    graph = nx.cycle_graph(size)
    with pytest.raises(TypeError, match=r"found an undirected Graph; its to_directed\(\)"):
        call(graph)
    assert bf.set_topology(graph.to_directed())


def test_undirected_graphs_of_an_optimizer(size):
    model = torch.nn.Linear(1, 1)
    for graphs in (nx.cycle_graph(size), [nx.cycle_graph(size)]):
        with pytest.raises(TypeError, match="schedule: .*undirected"):
            bf.DecentralizedOptimizer(torch.optim.SGD(model.parameters(), lr=1), model,
                                      schedule=graphs)


def test_integer_averages(rank):
    x = torch.tensor([rank, 1])
    with pytest.raises(ValueError, match=r"found int64; convert .*tensor.float\(\).*average=False"):
        bf.allreduce(x)
    with pytest.raises(ValueError, match=r"found int64; convert the values first \(in Python "
                                         r"tensor.float\(\)\)$"):
        bf.neighbor_allreduce(x)
    assert bf.allreduce(x, average=False)[1] == bf.size()


def test_idle_ranks(rank, size):
    """Ranks average in pairs; who has no partner talks to itself."""
    partner = rank + 1 if rank % 2 == 0 and rank + 1 < size else rank - rank % 2
    given = {"self_weight": 0.25, "src_weights": {partner: 0.75}, "dst_weights": [partner]}
    expected = 0.25 * rank + 0.75 * partner
    x = torch.full((3,), float(rank))
    for dst_weights in ([partner], {partner: 1.0}):
        given["dst_weights"] = dst_weights
        assert bf.neighbor_allreduce(x, **given).eq(expected).all()
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.constant_(model.weight, rank)
    optimizer = bf.DistributedAdaptThenCombineOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.0), model)
    for name, value in given.items():
        setattr(optimizer, name, value)
    model(torch.ones(1, 1)).sum().backward()
    optimizer.step()
    assert model.weight.eq(expected).all()


def test_a_machine_that_talks_to_itself(rank, size):
    found = bf.hierarchical_neighbor_allreduce(
        torch.full((2,), float(rank)), self_weight=0.5,
        src_machine_weights={bf.machine_rank(): 0.25}, dst_machine_weights={bf.machine_rank(): 2})
    assert found.eq((size - 1) / 2).all()


def test_only_one_end_of_an_own_edge(rank, size):
    needs(2)
    x, other = torch.ones(1), (rank + 1) % size
    for given in ({"src_weights": {rank: 0.5}, "dst_weights": [other]},
                  {"src_weights": {}, "dst_weights": [rank]}, {"src_weights": {rank: 0.5}}):
        with pytest.raises(bluefog_cpp.InvalidArgument,
                           match=f"rank {rank}, .* rank {rank} itself among .* self weight"):
            bf.neighbor_allreduce(x, self_weight=0.5, **given)
    bf.win_create(x, "w")
    with pytest.raises(ValueError, match=f"found {rank}; its own value needs no edge"):
        bf.win_put(x, "w", dst_weights={rank: 1.0})
    bf.barrier()


@pytest.mark.parametrize("order", ("rising", "falling", "rotated", "with own"))
def test_gathered_in_the_order_of_the_sources(order, rank, size):
    others = [each for each in range(size) if each != rank]
    sources = {"rising": others, "falling": others[::-1], "rotated": others[1:] + others[:1],
               "with own": [rank, *others[::-1]]}[order]
    receivers = others if rank not in sources else [*others, rank]
    rows = torch.full((rank + 1, 2), float(rank))
    found = bf.neighbor_allgather(rows, src_ranks=sources, dst_ranks=receivers)
    expected = [torch.full((each + 1, 2), float(each)) for each in sources]
    assert found.equal(torch.cat([torch.zeros(0, 2), *expected]))
    empty = bf.neighbor_allgather(torch.zeros(rank, 0), src_ranks=sources, dst_ranks=receivers)
    assert empty.shape == (sum(sources), 0)
    assert bf.neighbor_allgather(rows, src_ranks=set(others), dst_ranks=set(others)).equal(
        torch.cat([torch.zeros(0, 2), *(torch.full((each + 1, 2), float(each))
                                        for each in others)]))
