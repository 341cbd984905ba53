"""send, recv and batch_isend_irecv: by source, tag and number."""

import pytest
import torch
import torch.distributed as dist


def ring(rank, size):
    return (rank + 1) % size, (rank - 1) % size


@pytest.mark.parametrize("count", [0, 1, 1000, 3_000_000])
def test_ring(rank, size, count):
    ahead, behind = ring(rank, size)
    got = torch.empty(count)
    work = dist.irecv(got, behind)
    dist.send(torch.full((count,), float(rank)), ahead)
    assert work.wait()
    assert got.eq(behind).all()
    assert work.source_rank() == behind


def test_tags_in_another_order(rank, size):
    ahead, behind = ring(rank, size)
    sent = [dist.isend(torch.full((n,), float(tag)), ahead, tag=tag)
            for tag, n in ((5, 10), (7, 100_000), (9, 3), (7, 100_000))]
    got = [torch.empty(n) for n in (3, 100_000, 100_000, 10)]
    for tensor, tag in zip(got, (9, 7, 7, 5)):
        dist.recv(tensor, behind, tag=tag)
        assert tensor.eq(tag).all()
    for work in sent:
        work.wait()


def test_batch(rank, size):
    ahead, behind = ring(rank, size)
    got = [torch.empty(50) for _ in range(4)]
    ops = []
    for k in range(4):
        x = torch.full((50,), 10.0 * rank + k)
        pair = [dist.P2POp(dist.isend, x, ahead), dist.P2POp(dist.irecv, got[k], behind)]
        ops += pair if rank % 2 else pair[::-1]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    for k in range(4):
        assert got[k].eq(10 * behind + k).all()


def test_between_collectives(rank, size):
    """Messages are in no order with calls of all ranks."""
    ahead, behind = ring(rank, size)
    got = torch.empty(10)
    receipt = dist.irecv(got, behind)
    x = torch.ones(1)
    dist.all_reduce(x)
    sending = dist.isend(torch.full((10,), float(rank)), ahead)
    dist.all_reduce(x)
    receipt.wait()
    sending.wait()
    assert x.item() == size * size and got.eq(behind).all()


def test_futures_of_messages(rank, size):
    ahead, behind = ring(rank, size)
    first, second = torch.empty(4), torch.empty(4)
    late = dist.irecv(first, behind, tag=1).get_future()
    early = dist.irecv(second, behind, tag=2).get_future()
    dist.send(torch.full((4,), 2.0), ahead, tag=2)
    assert early.wait()[0].eq(2).all()  # although the other one comes later
    dist.send(torch.full((4,), 1.0), ahead, tag=1)
    assert late.wait()[0].eq(1).all()


def test_more_than_the_other_rank_takes(rank, size):
    """What a sender has under way is bounded; it goes on when the reader comes."""
    ahead, behind = ring(rank, size)
    sent = [dist.isend(torch.full((4_000_000,), float(k)), ahead) for k in range(8)]
    dist.barrier()
    got = torch.empty(4_000_000)
    for k in range(8):
        dist.recv(got, behind)
        assert got[0] == k and got[-1] == k
    for work in sent:
        work.wait()


def test_any_source_is_refused(rank):
    with pytest.raises(NotImplementedError, match=r"expected the rank that sends \(src=\.\.\.\)"):
        dist.recv(torch.empty(1))
    dist.barrier()


def test_wrong_partners(rank, size):
    with pytest.raises(ValueError, match="Invalid destination rank|expected another rank"):
        dist.send(torch.ones(1), rank)
    x = torch.ones(1)
    dist.all_reduce(x)
    assert x.item() == size
