"""Every call of torch.distributed, its values beside gloo's."""

import time

import pytest
import torch
import torch.distributed as dist
from torch.distributed import ReduceOp

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64,
          torch.uint8)


def values(rank, shape, dtype=torch.float32, seed=0):
    """Small whole numbers: sums of them are the same in any order and dtype."""
    made = torch.Generator().manual_seed(100 * seed + rank)
    return torch.randint(0, 5, shape, generator=made).to(dtype)


def expect_equal(pair):
    ours, theirs = pair
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("count", [0, 1, 3, 1000, 100_003])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_all_reduce(both, rank, count, dtype):
    def run(group):
        x = values(rank, (count,), dtype)
        dist.all_reduce(x, group=group)
        return x
    expect_equal(both(run))


@pytest.mark.parametrize("op", [ReduceOp.MIN, ReduceOp.MAX, ReduceOp.PRODUCT, ReduceOp.BAND,
                                ReduceOp.BOR, ReduceOp.BXOR], ids=lambda op: str(op).split(".")[-1])
@pytest.mark.parametrize("count", [7, 50_001])
def test_rules(both, rank, op, count):
    on_bits = op in (ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR)

    def run(group):
        results = []
        for dtype in (torch.int64, torch.uint8) if on_bits else (torch.float32, torch.int32):
            x = values(rank, (count,), dtype) + 1
            dist.all_reduce(x, op, group=group)
            results.append(x)
        return results
    expect_equal(both(run))


def test_averages_and_complex(rank, size):
    x = torch.full((9,), float(rank))
    dist.all_reduce(x, ReduceOp.AVG)
    assert x.eq((size - 1) / 2).all()
    z = torch.full((5,), complex(rank, 1))
    dist.all_reduce(z)
    assert z.eq(complex(sum(range(size)), size)).all()
    flags = torch.tensor([rank == 0, False])
    dist.all_reduce(flags, ReduceOp.MAX)
    assert flags.tolist() == [True, False]


@pytest.mark.parametrize("dtype", [*DTYPES, torch.bool, torch.complex64], ids=str)
def test_broadcast_gather_scatter(both, rank, size, dtype):
    root = size - 1

    def run(group):
        x = values(rank, (3, 5), dtype)
        dist.broadcast(x, root, group=group)
        own = values(rank, (4,), dtype)
        gathered = [torch.empty_like(own) for _ in range(size)] if rank == root else None
        dist.gather(own, gathered, root, group=group)
        out = torch.empty(6, dtype=dtype)
        dist.scatter(out, [values(i, (6,), dtype, 1) for i in range(size)] if rank == 0 else None,
                     0, group=group)
        return [x, out, *(gathered or [])]
    if dtype == torch.complex64:  # gloo scatters and gathers none
        x = values(rank, (3, 5), dtype)
        dist.broadcast(x, root)
        assert x.equal(values(root, (3, 5), dtype))
    else:
        expect_equal(both(run))


@pytest.mark.parametrize("count", [1, 20_000])
def test_reduce(both, rank, size, count):
    def run(group):
        x = values(rank, (count,))
        dist.reduce(x, size - 1, group=group)
        return x if rank == size - 1 else None
    ours, theirs = both(run)
    if rank == size - 1:
        assert ours.equal(theirs)
    kept = values(rank, (count,))
    dist.reduce(kept, 0, ReduceOp.MAX)
    assert rank == 0 or kept.equal(values(rank, (count,)))


@pytest.mark.parametrize("count", [1, 30_000])
def test_gathering_and_scattering_tensors(both, rank, size, count):
    def run(group):
        own = values(rank, (2, count))
        lists = [torch.empty_like(own) for _ in range(size)]
        dist.all_gather(lists, own, group=group)
        flat = torch.empty(2 * size, count)
        dist.all_gather_into_tensor(flat, own, group=group)
        part = torch.empty(2, count)
        dist.reduce_scatter_tensor(part, values(rank, (2 * size, count), seed=2), group=group)
        of_lists = torch.empty(count)
        dist.reduce_scatter(of_lists, [values(rank, (count,), seed=i) for i in range(size)],
                            group=group)
        return [*lists, flat, part, of_lists]
    expect_equal(both(run))


@pytest.mark.parametrize("count", [1, 9_000])
def test_all_to_all(both, rank, size, count):
    def run(group):
        # Gloo has no lists; rows of different numbers are the same.
        whole = torch.empty(size, count)
        dist.all_to_all_single(whole, values(rank, (size, count)), group=group)
        sent = [rank + j + 1 for j in range(size)]
        uneven = torch.empty(sum(sent), count)
        dist.all_to_all_single(uneven, values(rank, (sum(sent), count), seed=3), sent, sent,
                               group=group)
        return [whole, uneven]
    expect_equal(both(run))
    parts = [torch.empty(count) for _ in range(size)]
    dist.all_to_all(parts, [values(rank, (count,), seed=j) for j in range(size)])
    assert all(part.equal(values(j, (count,), seed=rank)) for j, part in enumerate(parts))


def test_coalesced(both, rank, size):
    def run(group):
        tensors = [values(rank, (n,), seed=n) for n in (1, 3, 5000)]
        with dist._coalescing_manager(group):
            for tensor in tensors:
                dist.all_reduce(tensor, group=group)
        return tensors
    expect_equal(both(run))
    flat = [torch.empty(size * n) for n in (2, 300)]
    with dist._coalescing_manager():
        for n, out in zip((2, 300), flat):
            dist.all_gather_into_tensor(out, values(rank, (n,), seed=n))
    parts = [torch.empty(n) for n in (2, 300)]
    with dist._coalescing_manager():
        for n, out in zip((2, 300), parts):
            dist.reduce_scatter_tensor(out, values(rank, (size * n,), seed=n))
    for n, gathered, part in zip((2, 300), flat, parts):
        assert gathered.equal(torch.cat([values(j, (n,), seed=n) for j in range(size)]))
        whole = sum(values(j, (size * n,), seed=n) for j in range(size))
        assert part.equal(whole[rank * n:(rank + 1) * n])


@pytest.mark.filterwarnings("ignore:.*all_gather_coalesced")
def test_gathers_of_many(both, rank, size):
    def run(group):
        mine = [values(rank, (n,), seed=n) for n in (1, 3, 5000)]
        out = [[torch.empty_like(each) for each in mine] for _ in range(size)]
        dist.all_gather_coalesced(out, mine, group=group)
        return [each for of_rank in out for each in of_rank]
    expect_equal(both(run))


def test_objects(both, rank, size):
    def run(group):
        gathered = [None] * size
        dist.all_gather_object(gathered, {"rank": rank, "more": "x" * rank}, group=group)
        at_root = [None] * size if rank == 0 else None
        dist.gather_object(("from", rank), at_root, 0, group=group)
        sent = [rank, {"a": rank}] if rank == size - 1 else [None, None]
        dist.broadcast_object_list(sent, size - 1, group=group)
        got = [None]
        dist.scatter_object_list(got, list(range(size)) if rank == 0 else None, 0, group=group)
        return gathered, at_root, sent, got
    ours, theirs = both(run)
    assert ours == theirs


def test_works_and_futures(rank, size):
    tensors = [torch.full((n,), float(rank)) for n in (1, 100, 100_000)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    futures = [work.get_future() for work in works]
    called = torch.futures.collect_all([
        future.then(lambda done: done.value()[0] / size) for future in futures]).wait()
    for work, tensor, done in zip(works, tensors, called):
        assert work.wait() and work.is_completed() and work.is_success()
        assert tensor.eq(sum(range(size))).all() and done.value().eq((size - 1) / 2).all()
        assert work.get_future().done()
    # The callback of a future may make calls itself.
    def again(done):
        x = done.value()[0]
        dist.all_reduce(x)
        return x
    x = torch.ones(1000)
    work = dist.all_reduce(x, async_op=True)
    assert work.get_future().then(again).wait().eq(size * size).all()
    dist.barrier()
    assert dist.barrier(async_op=True).wait()


def test_a_callback_waits_for_another_call(rank, size):
    """Whoever is late in it: gradients of DDP's PowerSGD hook are averaged by such calls."""
    def nested(done):
        if rank == size - 1:
            time.sleep(0.1)
        return dist.all_reduce(done.value()[0].clone(), async_op=True).get_future().wait()[0]

    for _ in range(2):
        future = dist.all_reduce(torch.ones(4), async_op=True).get_future().then(nested)
        assert future.wait().eq(size * size).all()



def test_strides(both, rank):
    """Tensors that are dense in another order, and views of larger ones."""
    def run(group):
        x = values(rank, (4, 6)).t()
        dist.all_reduce(x, group=group)
        y = values(rank, (10, 6))[2:7]
        dist.broadcast(y, 0, group=group)
        return [x, y]
    expect_equal(both(run))
    large = values(rank, (100_000,))
    dist.all_reduce(large[1000:90_000])
    assert large[:1000].equal(values(rank, (100_000,))[:1000])


@pytest.mark.parametrize("blocking", [True, False])
def test_elements_with_gaps(rank, size, blocking):
    """They go by rows, and what lies between them stays. The same of an order that a call does not
    take, and on some ranks alone. gloo fills gaps."""
    def finish(call, *arguments):
        work = call(*arguments, async_op=not blocking)
        if work is not None:
            work.wait()

    inputs = [values(r, (4, 6)) for r in range(size)]
    x = inputs[rank].clone()
    finish(dist.all_reduce, x[:, ::2])
    assert x[:, ::2].equal(sum(inputs)[:, ::2]) and x[:, 1::2].equal(inputs[rank][:, 1::2])
    x = inputs[rank].clone()
    some = x[:, 1::2] if rank < 2 else values(rank, (4, 3))
    finish(dist.broadcast, some, 0)
    assert some.equal(inputs[0][:, 1::2]) and x[:, ::2].equal(inputs[rank][:, ::2])
    gathered = [torch.zeros(6, 4).t() for _ in range(size)]
    finish(dist.all_gather, gathered, inputs[rank][:1].expand(4, 6))
    assert all(part.equal(one[:1].expand(4, 6)) for part, one in zip(gathered, inputs))
    parts = torch.arange(6.0 * size).reshape(3, 2 * size).t()
    own = torch.zeros(2, 6)
    finish(dist.reduce_scatter_tensor, own[:, 1::2], parts)
    assert own[:, 1::2].equal(parts[2 * rank:2 * rank + 2] * size) and own[:, ::2].eq(0).all()
    there = torch.zeros(size, 6)
    finish(dist.all_to_all_single, there[:, ::2], torch.full((3, size), float(rank)).t())
    assert there[:, ::2].eq(torch.arange(float(size))[:, None]).all()
    assert there[:, 1::2].eq(0).all()


def test_messages_with_gaps(rank, size):
    x = torch.full((4, 6), float(rank))
    y = torch.zeros(3, 8)
    for sent in (x[:, :3], x[:1, :1].expand(4, 3)):
        y.zero_()
        works = dist.batch_isend_irecv([dist.P2POp(dist.isend, sent, (rank + 1) % size),
                                        dist.P2POp(dist.irecv, y[:, ::2].t(), (rank - 1) % size)])
        for work in works:
            work.wait()
        assert y[:, ::2].eq((rank - 1) % size).all() and y[:, 1::2].eq(0).all()


def test_negatives(rank, size):
    """Views with a mark, whose memory holds the other sign. torch itself takes conjugates, and what
    does not lie in lists."""
    parts = [torch.zeros(3, dtype=torch.complex64) for _ in range(size)]
    dist.all_gather([part.conj().imag for part in parts], torch.full((3,), float(rank + 1)))
    assert all(part.imag.eq(-(r + 1)).all() for r, part in enumerate(parts))
    there = [torch.zeros(3) for _ in range(size)]
    dist.all_to_all(there, [parts[rank].conj().imag] * size)
    assert all(part.eq(r + 1).all() for r, part in enumerate(there))


def test_sums_of_bools_are_their_or(both, rank, size):
    def run(group):
        x = torch.tensor([False, rank == 0, rank > 0, True])
        dist.all_reduce(x, group=group)
        y = torch.tensor([rank == size - 1, False])
        dist.reduce(y, 0, group=group)
        return [x, y if rank == 0 else x]
    expect_equal(both(run))
