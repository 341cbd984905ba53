"""Averages whose weights do not sum to 1 would scale the model without a word: they are refused,
with the row, its sum and the way out, unless they are asked for."""

import networkx as nx
import pytest
import torch

import bluefog_cpp
import bluefog_cpp.torch as bf
from bluefog_cpp.torch import model_averaging
from conftest import needs

HEARD = (bluefog_cpp.InvalidArgument, bluefog_cpp.PeerFailure)
RATE = 0.0  # the local step changes nothing


def heavy_ring(size, extra=0.5):
    """Every rank gives 1/2 to itself and to the one before; the last one `extra` more to itself."""
    graph = nx.DiGraph()
    for i in range(size):
        graph.add_edge(i, (i + 1) % size, weight=0.5)
        graph.add_edge(i, i, weight=0.5 + (extra if i == size - 1 else 0))
    return graph


def ones(wrap, **options):
    model = torch.nn.Linear(2, 1, bias=False)
    torch.nn.init.ones_(model.weight)
    return model, wrap(torch.optim.SGD(model.parameters(), lr=RATE), model, **options)


def step(model, optimizer):
    optimizer.zero_grad()
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    optimizer.finish()


WRAPPERS = (bf.DistributedAdaptThenCombineOptimizer, bf.DistributedAdaptWithCombineOptimizer,
            bf.DistributedNeighborAllreduceOptimizer)


@pytest.mark.parametrize("wrap", WRAPPERS)
def test_a_topology_of_other_sums(wrap, rank, size):
    needs(2)
    bf.set_topology(heavy_ring(size), is_weighted=True)
    model, optimizer = ones(wrap)
    # The first use of a topology compares it: all ranks hear of the last one's weights.
    with pytest.raises(HEARD, match=f"row {size - 1} sums to 1.5 .*row_sums='any'"):
        step(model, optimizer)
    assert model.weight.eq(1).all()
    bf.set_topology(heavy_ring(size, 0), is_weighted=True)
    step(model, optimizer)
    assert model.weight.eq(1).all()


@pytest.mark.parametrize("wrap", WRAPPERS)
def test_other_sums_that_are_asked_for(wrap, rank, size):
    needs(2)
    bf.set_topology(heavy_ring(size), is_weighted=True)
    model, optimizer = ones(wrap, row_sums="any")
    assert optimizer.row_sums == "any"
    step(model, optimizer)
    if wrap is WRAPPERS[0]:
        assert model.weight.eq(1.5 if rank == size - 1 else 1).all()
    with pytest.raises(ValueError, match="row_sums is chosen when the optimizer is wrapped"):
        optimizer.row_sums = "one"


def test_weights_of_one_step(rank, size):
    needs(2)
    model, optimizer = ones(bf.DistributedAdaptThenCombineOptimizer)
    ahead, behind = (rank + 1) % size, (rank - 1) % size
    optimizer.self_weight, optimizer.src_weights = 0.5, {behind: 0.75}
    optimizer.dst_weights = [ahead]
    with pytest.raises(HEARD, match=r"row \d sums to 1.25"):
        step(model, optimizer)
    # Its receiver does not see what a sender weighs with, also where the sum would be 1.
    for weight in (0.5, 2.0):
        optimizer.src_weights, optimizer.dst_weights = {behind: 0.5 / weight}, {ahead: weight}
        with pytest.raises(HEARD, match=rf"sends to rank \d with weight {weight:g}"):
            step(model, optimizer)
    # Weights in float32 are near enough.
    third = float(torch.tensor(1 / 3))
    optimizer.self_weight, optimizer.src_weights = 2 * third, {behind: third}
    optimizer.dst_weights = [ahead]
    step(model, optimizer)
    assert model.weight.allclose(torch.ones(1, 2))


@pytest.mark.parametrize("algorithm", ("adapt_then_combine", "adapt_with_combine", "gossip_pga",
                                       "quasi_global_momentum", "win_put", "pull_get"))
def test_schedules_of_every_algorithm(algorithm, rank, size):
    needs(2)
    with pytest.raises(HEARD, match=f"{algorithm} expects rows that sum to 1.*row {size - 1} sums "
                                    "to 1.5; .*push_sum.*row_sums"):
        ones(bf.DecentralizedOptimizer, algorithm=algorithm, schedule=heavy_ring(size))
    if algorithm != "quasi_global_momentum":  # whose momentum would grow
        ones(bf.DecentralizedOptimizer, algorithm=algorithm, schedule=heavy_ring(size),
             row_sums="any")
    with pytest.raises(ValueError, match="row_sums: expected one of one, any, found 'all'"):
        ones(bf.DecentralizedOptimizer, algorithm=algorithm, row_sums="all")


def test_push_sum_goes_by_columns(rank, size):
    needs(2)
    columns = nx.DiGraph()
    for i in range(size):  # all send to rank 0 as well
        for j in {i, (i + 1) % size, 0}:
            columns.add_edge(i, j, weight=1 / len({i, (i + 1) % size, 0}))
    model, optimizer = ones(bf.DecentralizedOptimizer, algorithm="push_sum", schedule=columns)
    step(model, optimizer)
    assert model.weight.allclose(torch.ones(1, 2))


@pytest.mark.parametrize("wrap", (bf.DistributedWinPutOptimizer, bf.DistributedPullGetOptimizer))
def test_optimizers_over_windows(wrap, rank, size):
    needs(2)
    bf.set_topology(heavy_ring(size), is_weighted=True)
    with pytest.raises(HEARD, match=f"expected weights of the topology that sum to 1 for rank "
                                    f"{size - 1}, .*found that they sum to 1.5.*row_sums='any'"):
        ones(wrap)
    _, optimizer = ones(wrap, row_sums="any")
    optimizer.unregister_window()
    bf.set_topology(heavy_ring(size, 0), is_weighted=True)
    model, optimizer = ones(wrap)
    name = "dst_weights" if wrap is bf.DistributedWinPutOptimizer else "src_weights"
    other = (rank + 1 if name == "dst_weights" else rank - 1) % size
    setattr(optimizer, name, {other: 0.5})
    with pytest.raises(ValueError, match=f"{name}: expected weights of 1, .*found 0.5 for rank "
                                         f"{other}; wrap with row_sums='any'"):
        step(model, optimizer)
    setattr(optimizer, name, {other: 1.0})
    step(model, optimizer)
    bf.barrier()


def test_averagers(rank, size):
    needs(2)
    bf.set_topology(heavy_ring(size), is_weighted=True)
    parameter = torch.nn.Parameter(torch.ones(2))
    with pytest.raises(HEARD, match=f"sum to 1 for rank {size - 1}, .*sum to 1.5"):
        model_averaging.NeighborAverager().average_parameters([parameter])
    bf.neighbor_allreduce(torch.ones(1))
    model_averaging.NeighborAverager(row_sums="any").average_parameters([parameter])
    assert parameter.eq(1.5 if rank == size - 1 else 1).all()
