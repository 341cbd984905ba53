"""set_topology on one rank alone, or with different graphs: the next call says which rank, and
what."""

import contextlib

import networkx as nx
import pytest
import torch

import bluefog_cpp
import bluefog_cpp.torch as bf
from bluefog_cpp import topology_util
from conftest import needs
from simulation import model_of, train

HEARD = (bluefog_cpp.MismatchError, bluefog_cpp.PeerFailure)


def weighted_ring(size, self_weight):
    graph = nx.DiGraph()
    graph.add_edges_from((i, (i + 1) % size, {"weight": 1 - self_weight}) for i in range(size))
    graph.add_edges_from((i, i, {"weight": self_weight}) for i in range(size))
    return graph


def said_by(call):
    with pytest.raises(HEARD) as raised:
        call()
    return str(raised.value)


@pytest.mark.parametrize("others_call", ("neighbor_allreduce", "neighbor_allgather", "allreduce"))
def test_one_rank_alone(others_call, rank, size):
    needs(2)
    x = torch.ones(2)
    bf.neighbor_allreduce(x)
    bf.neighbor_allgather(x)
    if rank == 0:
        bf.set_topology(weighted_ring(size, 0.4), is_weighted=True)
    call = bf.neighbor_allreduce if rank == 0 else getattr(bf, others_call)
    said = said_by(lambda: [call(x) for _ in range(2)])
    if rank == 0:
        assert "rank 0 compares the ranks' topologies first (as after a set_topology" in said


def test_graphs_with_other_edges(rank, size):
    needs(3)
    bf.set_topology(topology_util.RingGraph(size, connect_style=2 if rank == 0 else 1))
    said = said_by(lambda: bf.neighbor_allreduce(torch.ones(2)))
    assert "rank 0 sends to rank 1, but rank 1 does not expect it" in said


@pytest.mark.parametrize("call", ("neighbor_allreduce", "neighbor_allreduce_", "neighbor_allgather",
                                  "neighbor_allreduce_nonblocking"))
def test_graphs_with_other_weights(call, rank, size):
    needs(2)
    x = torch.ones(2)
    bf.set_topology(weighted_ring(size, 0.5 if rank == size - 1 else 0.25), is_weighted=True)
    for _ in range(2):
        said = said_by(lambda: bf.wait(getattr(bf, call)(x)) if "nonblocking" in call
                       else getattr(bf, call)(x))
        assert f"ranks 0 and {size - 1} were given different ones" in said and "weights" in said
    bf.set_topology(weighted_ring(size, 0.5), is_weighted=True)
    assert bf.neighbor_allreduce(torch.ones(2)).tolist() == [1, 1]


def test_one_rank_counts_weights_and_the_others_not(rank, size):
    needs(2)
    bf.set_topology(weighted_ring(size, 0.25), is_weighted=rank == 0)
    assert "ranks 0 and 1 were given different ones" in said_by(
        lambda: bf.neighbor_allreduce(torch.ones(2)))


def test_weights_that_were_computed_in_another_order(rank, size):
    needs(2)
    bf.set_topology(weighted_ring(size, 0.1 + 0.2 if rank == 0 else 0.3), is_weighted=True)
    assert bf.neighbor_allreduce(torch.ones(2)).allclose(torch.ones(2))


def test_machines(rank):
    needs(2)
    bf.set_machine_topology(topology_util.RingGraph(1), is_weighted=True)
    assert bf.hierarchical_neighbor_allreduce(torch.ones(2), name="m").tolist() == [1, 1]


@pytest.mark.parametrize("wrap",
                         (bf.DistributedAdaptThenCombineOptimizer, bf.DistributedPushSumOptimizer))
def test_in_an_optimizer(wrap, rank, size):
    needs(2)
    model = model_of(0)
    optimizer = wrap(torch.optim.SGD(model.parameters(), lr=0.1), model)
    train(model, optimizer, rank, 1)
    bf.set_topology(weighted_ring(size, 0.4 if rank == 0 else 0.25), is_weighted=True)
    assert "were given different ones" in said_by(lambda: train(model, optimizer, rank, 1))
    bf.set_topology(weighted_ring(size, 0.5), is_weighted=True)
    train(model, optimizer, rank, 2)


@pytest.mark.parametrize("call", ("neighbor_allreduce", "neighbor_allgather"))
def test_a_refused_first_call_leaves_ranks_agreed(call, rank):
    needs(2)
    with pytest.raises((*HEARD, TypeError)):
        getattr(bf, call)("no tensor" if rank == 0 else torch.ones(2))
    bf.barrier()
    for _ in range(3):
        getattr(bf, call)(torch.ones(2))


def test_a_rank_that_takes_its_topology_back_goes_on(rank, size):
    needs(2)
    x = torch.ones(2)
    bf.neighbor_allreduce(x)
    if rank == 0:
        bf.set_topology(topology_util.StarGraph(size))
        bf.set_topology(weighted_ring(size, 0.4), is_weighted=True)
    bf.set_topology(topology_util.ExponentialGraph(size))
    assert bf.neighbor_allreduce(x).tolist() == [1, 1]
    if rank == 0:
        bf.set_topology(weighted_ring(size, 0.3), is_weighted=True)
    # All ranks make as many calls, and some get the error later than others.
    for call in (lambda: bf.neighbor_allreduce(x), bf.barrier, bf.barrier):
        with contextlib.suppress(*HEARD):
            call()
            assert call == bf.barrier or rank != 0
    bf.set_topology(topology_util.ExponentialGraph(size))
    assert bf.neighbor_allreduce(x).tolist() == [1, 1]
