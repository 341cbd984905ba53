"""Ranks that go on, with nobody lost (tests/python/programs/lost_rank.py has losses)."""

import os
import time

import pytest
import torch
import torch.distributed as dist

import bluefog_cpp
import bluefog_cpp.torch as bf

BY_MPI = "OMPI_COMM_WORLD_RANK" in os.environ
needs_a_store = pytest.mark.skipif(BY_MPI, reason="ranks that MPI started keep all of them")


def test_membership_at_first(rank, size):
    assert bf.membership() == bf.Membership(0, list(range(size)), [], [])


@pytest.mark.skipif(not BY_MPI, reason="ranks met in a store")
def test_ranks_of_mpi_cannot_shrink(rank, size):
    if size == 1 or dist.is_initialized():
        pytest.skip("alone, or in the store of torch's group")
    with pytest.raises(bluefog_cpp.UnsupportedError, match=f"rank {rank}, shrink: .*'mpi'"):
        bf.shrink()
    assert bf.allreduce(torch.ones(1))[0] == 1  # all stays as it was


@needs_a_store
def test_shrink_moves_all_there_is(rank, size):
    bf.set_topology(bf.RingGraph(size), is_weighted=True)
    model = torch.nn.Linear(3, 2)
    optimizer = bf.DistributedAdaptThenCombineOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), model)
    called = []
    assert bf.on_shrink(lambda: called.append(bf.membership().epoch))
    for _ in range(2):
        model(torch.full((1, 3), float(rank))).sum().backward()
        optimizer.step()
    before = [each.detach().clone() for each in model.parameters()]
    in_flight = bf.allreduce_nonblocking(torch.ones(4))
    if rank == 0:
        in_flight = bf.neighbor_allreduce_nonblocking(torch.ones(4))  # nobody else makes it
    old = bf.neighbor_allreduce_.prepare(torch.ones(4))
    time.sleep(0.5 * rank)  # who comes first ends what the others are in
    found = bf.shrink()
    assert found == bf.Membership(1, list(range(size)), [], []) == bf.membership()
    assert (bf.rank(), bf.size(), called) == (rank, size, [1])
    assert bf.is_topo_weighted() and set(bf.load_topology().edges) == set(
        bf.RingGraph(size).edges)
    if rank == 0 and size > 1:
        with pytest.raises(bluefog_cpp.RankLostError, match="shrink"):
            bf.synchronize(in_flight)
    with pytest.raises(bluefog_cpp.Error):
        old()
    # Parameters are the mean over the ranks now.
    for was, now in zip(before, model.parameters()):
        torch.testing.assert_close(now.detach(), bf.allreduce(was))
    assert optimizer.state_dict()["state"][0]["momentum_buffer"] is not None
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    bf.win_create(torch.ones(2), "after")
    bf.win_free("after")


def test_survive(size):
    assert bf.survive(lambda: bf.allreduce(torch.ones(1), average=False))[0] == size
    with pytest.raises(ZeroDivisionError):
        bf.survive(lambda: 1 / 0)
    assert bf.survive(lambda: bf.survive(lambda: 3)) == 3


@pytest.mark.parametrize("shuffle", [True, False])
def test_sampler_deals_all_samples(rank, size, shuffle):
    data = list(range(4 * size + 1))
    sampler = bf.ElasticSampler(data, shuffle=shuffle, seed=5)
    orders = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        own = list(sampler)
        assert len(own) == len(sampler) == 5
        everybody = bf.allgather(torch.tensor(own))
        assert set(everybody.tolist()) == set(data)
        assert list(sampler) == own  # the same epoch once more
        orders.append(everybody.tolist())
    assert (orders[0] != orders[1]) == shuffle
    if not shuffle:
        assert orders[0][:5] == [each * size % len(data) for each in range(5)]
    loader = torch.utils.data.DataLoader(data, batch_size=2, sampler=bf.ElasticSampler(data))
    assert sum(len(batch) for batch in loader) == 5


@needs_a_store
def test_sampler_deals_the_rest_anew(rank, size):
    data = list(range(20 * size))
    sampler = bf.ElasticSampler(data)
    draws = iter(sampler)
    own = [next(draws) for _ in range(3 + rank)]
    bf.shrink()
    own += list(draws)
    counts = bf.allgather(torch.tensor([len(own)])).tolist()
    assert len(set(counts)) == 1  # whoever was ahead draws less now
    assert set(bf.allgather(torch.tensor(own)).tolist()) == set(data)
    sampler.set_epoch(1)
    assert len(list(sampler)) == 20


@needs_a_store
def test_sampler_deals_nothing_to_loaders_that_ask_no_more(rank, size):
    sampler = bf.ElasticSampler(list(range(4 * size)), shuffle=False)
    draws = iter(sampler)
    own = list(draws) if rank == 0 else [next(draws)]
    bf.shrink()
    own += list(draws)
    assert len(own) == 4
    assert bf.allgather(torch.tensor(own)).unique().numel() == 4 * size
    # An epoch that is begun anew without a word has all samples.
    assert len(list(sampler)) == 4
    draws = iter(sampler)
    next(draws)
    assert len(list(sampler)) == 4


def test_sampler_refuses_what_is_no_epoch():
    sampler = bf.ElasticSampler([1, 2])
    for wrong in (-1, 1.5, "1", None):
        with pytest.raises(bluefog_cpp.InvalidArgument, match="set_epoch: epoch: expected"):
            sampler.set_epoch(wrong)
