"""Calls that do not fit together, ranks that do not come, arguments that nobody takes: errors that
say which call, on which rank, what was expected and what was found; and never a hang."""

import os
import re
import signal
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

Failure = dist.DistBackendError


@pytest.fixture(scope="module")
def short():
    """A group of its own, in which a wait takes two seconds at most."""
    dist.barrier()
    group = dist.new_group(timeout=timedelta(seconds=2))
    yield group
    dist.destroy_process_group(group)


def expect_usable(group, size):
    x = torch.ones(3)
    dist.all_reduce(x, group=group)
    assert x.eq(size).all()


def expect_failure(words, call, size):
    """On every rank, whichever of them finds it; the group stays usable."""
    with pytest.raises(Exception) as found:
        call()
    expect_usable(None, size)
    assert isinstance(found.value, (Failure, RuntimeError))
    assert re.search(words, str(found.value)), found.value


def test_counts_that_differ(rank, size):
    words = r"called allreduce\(float32\[[45]\], .* called allreduce\(float32\[[45]\], "
    expect_failure(words, lambda: dist.all_reduce(torch.ones(4 if rank == 0 else 5)), size)


def test_dtypes_that_differ(rank, size):
    words = r"float32\[4\].*float64\[4\]|float64\[4\].*float32\[4\]"
    dtype = torch.float64 if rank == 0 else torch.float32
    expect_failure(words, lambda: dist.all_reduce(torch.ones(4, dtype=dtype)), size)


def test_calls_that_differ(rank, size):
    def call():
        if rank == 0:
            dist.all_reduce(torch.ones(4))
        else:
            dist.all_gather([torch.empty(4) for _ in range(size)], torch.ones(4))
    expect_failure(r"allreduce.*allgather|allgather.*allreduce", call, size)


def test_parts_that_differ(rank, size):
    """Every rank expects parts of its own part's size."""
    n = 3 if rank == 0 else 4
    expect_failure(r"and sent 1[26] bytes, .* and expected 1[26] bytes", lambda: dist.all_gather(
        [torch.empty(n) for _ in range(size)], torch.ones(n)), size)


def test_orders_of_dimensions_that_differ(rank, size):
    """Their elements would be added in the order in which they lie."""
    def call():
        x = torch.arange(6.0).reshape(2, 3)
        dist.all_reduce(x.T.contiguous().T if rank == 0 else x)
    expect_failure(r"of strides \[1, 2\]", call, size)


def test_dtypes_of_one_size_that_differ(rank, size):
    dtype = torch.float8_e5m2 if rank == 0 else torch.float8_e4m3fn
    expect_failure(r"of Float8_e5m2.*of Float8_e4m3fn|of Float8_e4m3fn.*of Float8_e5m2",
                   lambda: dist.all_gather([torch.empty(4, dtype=dtype) for _ in range(size)],
                                           torch.ones(4).to(dtype)), size)


def test_a_future_has_the_error(rank, size):
    expect_failure(r"called allreduce\(float32\[[23]\], name 'sum'\)", lambda: dist.all_reduce(
        torch.ones(2 + rank % 2), async_op=True).get_future().wait(), size)


def test_one_rank_refuses(rank, size):
    """Its own error names the argument, and that of the others quotes it."""
    x = torch.ones(4, 4)
    with pytest.raises(ValueError if rank == 0 else Failure) as found:
        dist.all_reduce(x[:1].expand(4, 4) if rank == 0 else x)
    expect_usable(None, size)
    words = (r"rank 0, all_reduce: expected a result each of whose elements has a place of its "
             r"own, found Float\[4, 4\] on cpu with strides \[0, 1\]")
    others = "" if rank == 0 else r"rank \d ended this call with an error: .*"
    assert re.search(others + words, str(found.value))


def reduce_scatter_onto_the_part_of_another_rank():
    parts = torch.ones(dist.get_world_size(), 300_000)
    dist.reduce_scatter_tensor(parts[(dist.get_rank() + 1) % len(parts)], parts)


@pytest.mark.parametrize("call, error, words", [
    (lambda x: dist.all_reduce(x.to_sparse()), ValueError,
     "expected a dense tensor, found one of layout Sparse"),
    (lambda x: dist.all_reduce(x.to(torch.float8_e4m3fn)), NotImplementedError,
     "expected float16, bfloat16, float32, float64"),
    (lambda x: dist.all_reduce(x, dist.ReduceOp.BAND), ValueError, "expected an integer or bool"),
    (lambda x: dist.all_reduce(x.long(), dist.ReduceOp.AVG), ValueError, "for an average"),
    (lambda x: dist.all_reduce(x.bool(), dist.ReduceOp.AVG), ValueError, "for an average"),
    (lambda x: dist.all_gather([x], x), ValueError, r"outputs: expected \d buffers, found 1"),
    (lambda x: dist.all_gather_into_tensor(torch.empty(3), x), ValueError,
     r"output: expected \d parts of 4 elements, found 3"),
    (lambda x: dist.reduce_scatter_tensor(torch.empty(3), x), ValueError,
     r"input: expected \d parts of 3 elements, found 4"),
    (lambda x: dist.all_to_all_single(torch.empty(5), torch.ones(5)), ValueError,
     "expected a first dimension that is a multiple of"),
    (lambda x: dist.all_to_all_single(torch.empty(4), x, [1], [1]), ValueError,
     r"numbers of rows with the sum 4, found \[1\]"),
    (lambda x: dist.all_to_all_single(x, x), ValueError, "expected inputs and outputs apart"),
    (lambda x: reduce_scatter_onto_the_part_of_another_rank(), ValueError,
     "expected inputs and outputs apart"),
])
def test_arguments(size, call, error, words):
    with pytest.raises(error, match=words):
        call(torch.ones(4))
    expect_usable(None, size)


def test_a_rank_that_does_not_come(rank, size, short):
    if rank == 0:
        words = (r"allreduce\(float32\[1\].*: nothing moved for 2.0 s \(the timeout of its process "
                 r"group\): no message from rank 1")
        with pytest.raises(Failure, match=words):
            dist.all_reduce(torch.ones(1), group=short)
    dist.barrier()


def test_a_message_that_does_not_come(rank, short):
    if rank == 0:
        words = (r"receipt 1, message\(float32\[1\], name 'tag 3'\): nothing moved for 2.0 s.*no "
                 r"message from rank 1")
        with pytest.raises(Failure, match=words):
            dist.recv(torch.empty(1), 1, group=short, tag=3)
    dist.barrier()
    if rank == 0:
        work = dist.irecv(torch.empty(1), 1, tag=4)
        with pytest.raises(Failure, match=r"nothing moved for 1.0 s \(the timeout of this call\)"):
            work.wait(timedelta(seconds=1))
    dist.barrier()


def test_a_future_that_nobody_completes(rank, short):
    """Nobody waits for the work itself: its time is up all the same."""
    if rank == 0:
        future = dist.irecv(torch.empty(1), 1, group=short, tag=5).get_future()
        with pytest.raises(RuntimeError, match="nothing moved for 2.0 s"):
            future.wait()
    dist.barrier()


def test_messages_that_differ(rank, size):
    if rank == 0:
        dist.send(torch.ones(4), 1)
    elif rank == 1:
        words = (r"rank 0 called message\(float32\[4\], name 'tag 0'\), rank 1 called "
                 r"message\(float32\[5\], name 'tag 0'\)")
        with pytest.raises(Failure, match=words):
            dist.recv(torch.empty(5), 0)
    dist.barrier(group=dist.new_group(list(range(size))))  # not the group of the message
    if rank == 0:
        with pytest.raises(Failure, match="rank 1 did not accept this rank's message"):
            dist.barrier()
    else:
        dist.barrier()
    # The message that nobody could take is gone.
    if rank == 0:
        dist.send(torch.full((5,), 3.0), 1)
    elif rank == 1:
        got = torch.empty(5)
        dist.recv(got, 0)
        assert got.eq(3).all()
    expect_usable(None, size)


def test_groups(rank, size):
    """A group has its own calls, and its errors name torch's ranks."""
    members = [r for r in range(size) if r % 2 == 1]
    group = dist.new_group(members)
    if rank in members:
        x = torch.full((2,), float(rank))
        dist.all_reduce(x, group=group)
        assert x.eq(sum(members)).all()
        with pytest.raises(ValueError, match=r"\(ranks of group '.*', which are those of "
                                             r"torch.distributed 1"):
            dist.all_reduce(x.to_sparse(), group=group)
        dist.destroy_process_group(group)
    expect_usable(None, size)


def in_a_fork(body):
    """The code with which a fork of this rank ends that runs `body`."""
    child = os.fork()
    if child == 0:
        code = 2
        try:
            signal.alarm(20)  # a fork that waits for threads that it has not is ended
            code = body()
        finally:
            os._exit(code)
    status = os.waitpid(child, 0)[1]
    return os.waitstatus_to_exitcode(status)


def refusal_of(words, call):
    try:
        call()
    except RuntimeError as error:
        return 0 if re.search(words, str(error)) else 3
    return 1


def test_a_fork_uses_no_group_of_its_parent(size):
    dist.all_reduce(torch.ones(1), async_op=True).get_future().wait()  # by a thread of this process
    words = "expected the process of that rank, found a fork of it"
    assert in_a_fork(lambda: refusal_of(words, lambda: dist.all_reduce(torch.ones(1)))) == 0
    expect_usable(None, size)


def test_a_fork_makes_no_group(size, tmp_path):
    """Neither with its parent's group beside it nor after it has left that one."""
    words = r"process \d+ was forked from process \d+, which is rank \d"

    def new_group():
        return refusal_of(words, lambda: dist.new_group(list(range(size))))

    def own_group():
        dist.destroy_process_group()
        return refusal_of(words, lambda: dist.init_process_group(
            "bluefog", init_method=f"file://{tmp_path}/store", rank=0, world_size=1))

    assert in_a_fork(new_group) == 0
    assert in_a_fork(own_group) == 0
    expect_usable(None, size)
