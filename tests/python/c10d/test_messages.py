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


def test_negative_tags_are_refused(rank, size):
    """By the rank that gives them: no message is sent."""
    ahead, behind = ring(rank, size)
    words = "Tag must be nonnegative: expected 0 or more, found -1"
    with pytest.raises(ValueError, match=f"rank {rank}, send: {words}"):
        dist.send(torch.ones(1), ahead, tag=-1)
    with pytest.raises(ValueError, match=f"rank {rank}, receive: {words}"):
        dist.recv(torch.empty(1), behind, tag=-1)
    x = torch.ones(1)
    dist.all_reduce(x)
    assert x.item() == size


def test_partners_outside_of_the_group(rank, size):
    """Neither torch nor the backend takes them for another rank."""
    group = dist.new_group([0, 1])
    if rank < 2:
        for partner in (size, -2, 2**31 - 1):
            with pytest.raises((ValueError, RuntimeError), match="rank|group"):
                dist.send(torch.ones(1), partner, group=group)
        x = torch.tensor([float(rank)])
        got = torch.empty(1)
        work = dist.irecv(got, 1 - rank, group=group)
        dist.send(x, 1 - rank, group=group)
        work.wait()
        assert got.item() == 1 - rank
    dist.barrier()


def test_all_to_all_in_a_group(rank, size):
    """Parts go by the ranks of the group, in another order than those of torch."""
    members = list(range(size))[::-1]
    group = dist.new_group(members)
    own = dist.get_group_rank(group, rank)
    sent = [torch.full((3,), 10.0 * own + j) for j in range(size)]
    got = [torch.empty(3) for _ in range(size)]
    dist.all_to_all(got, sent, group=group)
    assert all(part.eq(10.0 * j + own).all() for j, part in enumerate(got))
    whole = torch.empty(size)
    dist.all_to_all_single(whole, torch.arange(float(size)) + 10.0 * own, group=group)
    assert whole.tolist() == [10.0 * j + own for j in range(size)]
