"""Operations that average nothing: broadcast, gathers, and who sends to whom."""

import numpy
import pytest
import torch

import bluefog_cpp
import bluefog_cpp.torch as bf
from bluefog_cpp import topology_util
from conftest import needs

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.uint8, torch.int8,
          torch.int16, torch.int32, torch.int64, torch.bool)


def numbers(rank, rows, dtype=torch.float32):
    return (torch.arange(rows * 2).reshape(rows, 2) + 10 * rank).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_broadcast(dtype, rank, size):
    for root in range(size):
        x = numbers(rank, 3, dtype)
        assert bf.broadcast(x, root).equal(numbers(root, 3, dtype))
        assert x.equal(numbers(rank, 3, dtype))
        assert bf.broadcast_(x, root_rank=root) is x and x.equal(numbers(root, 3, dtype))


def test_broadcast_of_other_layouts(rank, size):
    root = size - 1
    x = numbers(rank, 4).t()
    bf.broadcast_(x, root)
    assert x.equal(numbers(root, 4).t())
    assert bf.wait(bf.broadcast_nonblocking(torch.tensor(rank), root)) == root
    assert bf.wait(bf.broadcast_nonblocking_(torch.tensor([rank]), root)).tolist() == [root]
    assert bf.broadcast(torch.empty(0), root).numel() == 0


def test_a_root_that_is_no_rank_is_an_error_on_every_rank(size):
    for root in (-1, size):
        with pytest.raises(ValueError):
            bf.broadcast(torch.ones(1), root)
    bf.barrier()


@pytest.mark.parametrize("dtype", DTYPES)
def test_allgather_of_different_lengths(dtype, rank, size):
    result = bf.allgather(numbers(rank, rank + 1, dtype))
    assert result.dtype == dtype
    assert result.equal(torch.cat([numbers(r, r + 1, dtype) for r in range(size)]))


def test_allgather_of_scalars_and_of_nothing(rank, size):
    assert bf.allgather(torch.tensor(float(rank))).tolist() == list(range(size))
    rows = 0 if rank == 0 else 2
    assert bf.allgather(numbers(rank, rows)).shape == (2 * (size - 1), 2)
    assert bf.allgather(torch.empty(0)).shape == (0,)
    assert bf.wait(bf.allgather_nonblocking(numbers(rank, 2).t())).shape == (2 * size, 2)


@pytest.mark.parametrize("dtype", (torch.float32, torch.int64, torch.bool))
def test_gathers_of_rows_without_elements(dtype, rank, size):
    x = torch.empty(2 + rank, 0, 3, dtype=dtype)
    rows = sum(2 + r for r in range(size))
    assert bf.allgather(x).shape == (rows, 0, 3) and bf.allgather(x).dtype == dtype
    bf.set_topology(topology_util.RingGraph(size))
    heard = sum(2 + r for r in bf.in_neighbor_ranks())
    assert bf.neighbor_allgather(x).shape == (heard, 0, 3)
    ahead, behind = (rank + 1) % size, (rank - 1) % size
    if size > 1:
        found = bf.wait(bf.neighbor_allgather_nonblocking(x, src_ranks=[behind], dst_ranks=[ahead]))
        assert found.shape == (2 + behind, 0, 3) and found.dtype == dtype
        for other in (torch.empty(2, 0, 4), torch.empty(2, 0, 3, dtype=torch.float64),
                      torch.ones(2, 1)):
            with pytest.raises((ValueError, bluefog_cpp.PeerFailure)):
                bf.allgather(other if rank == 0 else torch.empty(2, 0, 3))
            assert bf.allreduce(torch.ones(1)).item() == 1


def test_allgather_of_rows_that_differ_is_an_error(rank):
    needs(2)
    with pytest.raises((ValueError, bluefog_cpp.PeerFailure)) as raised:
        bf.allgather(torch.ones((2, 3) if rank == 0 else (3, 2)))
    assert "rows of [3]" in str(raised.value) or "rows of [2]" in str(raised.value)
    bf.barrier()


def test_neighbor_allgather(rank, size):
    bf.set_topology(topology_util.ExponentialGraph(size))
    heard = bf.in_neighbor_ranks()
    result = bf.neighbor_allgather(numbers(rank, rank + 1))
    assert result.shape == (sum(r + 1 for r in heard), 2)
    if heard:
        assert result.equal(torch.cat([numbers(r, r + 1) for r in heard]))


def test_dynamic_neighbor_allgather(rank, size):
    sources = [(rank - 1) % size] if size > 1 else []
    destinations = [(rank + 1) % size] if size > 1 else []
    result = bf.neighbor_allgather(numbers(rank, 2), src_ranks=sources, dst_ranks=destinations)
    assert result.equal(torch.cat([torch.empty(0, 2), *(numbers(r, 2) for r in sources)]))
    for wrong in (dict(src_ranks=[]), dict(dst_ranks=[]), dict(src_ranks=[size], dst_ranks=[])):
        with pytest.raises(ValueError):
            bf.neighbor_allgather(numbers(rank, 2), **wrong)
    bf.barrier()


def test_gathers_that_do_not_match_are_an_error_on_every_rank(rank):
    needs(2)
    with pytest.raises(bluefog_cpp.MismatchError):
        bf.neighbor_allgather(numbers(rank, 2), src_ranks=[1] if rank == 0 else [], dst_ranks=[])
    bf.barrier()


def test_inference_of_sources_and_destinations(rank, size):
    destinations = list(range(rank + 1, size))
    sources = bf.InferSourceFromDestinationRanks(destinations)
    assert sources == list(range(rank))
    assert topology_util.InferDestinationFromSourceRanks(sources) == destinations
    found, matrix = bf.InferSourceFromDestinationRanks(destinations,
                                                       construct_adjacency_matrix=True)
    assert found == sources and numpy.allclose(matrix.sum(axis=0), 1)
    assert ((matrix > 0) == numpy.triu(numpy.ones((size, size)))).all()
    with pytest.raises(ValueError):
        bf.InferSourceFromDestinationRanks([rank])
    bf.barrier()
