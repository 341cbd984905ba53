"""Ranks that make one call in different ways: every rank that it concerns hears at once which rank
called what, and the calls after it find their own."""

import re

import pytest
import torch
import torch.distributed as dist

Failure = dist.DistBackendError


def expect_later_calls_to_match(rank, size):
    """A rank that had done its part may hear of the earlier call here; values are those of the same
    call on all ranks."""
    for k in range(1, 5):
        x = torch.full((3,), float(k))
        try:
            dist.all_reduce(x)
        except Failure as error:
            assert k == 1 and "heard of an earlier call only now" in str(error), error
        assert x.eq(k * size).all(), x


def error_of(call):
    with pytest.raises(Failure) as found:
        call()
    return str(found.value)


def gather_to(root, rank, size):
    places = [torch.empty(2) for _ in range(size)] if rank == root else None
    dist.gather(torch.ones(2), places, root)


def scatter_from(root, rank, size):
    parts = [torch.ones(2) for _ in range(size)] if rank == root else None
    dist.scatter(torch.empty(2), parts, root)


@pytest.mark.parametrize("call, name", [
    (lambda root, rank, size: dist.reduce(torch.ones(2), root), "reduce"),
    (lambda root, rank, size: dist.reduce(torch.ones(20_000), root), "reduce"),
    (gather_to, "gather")], ids=["short reduce", "long reduce", "gather"])
def test_two_take_themselves_for_the_root(call, name, rank, size):
    """Each waits for what the other one sends to itself alone."""
    def own():
        call(0 if rank == 0 else 1, rank, size)

    if rank < 2:
        error = error_of(own)
        assert re.search(rf"rank \d called {name}\(.*root [01]'\), rank \d called "
                         rf"{name}\(.*root [01]'", error), error
        assert "root 0" in error and "root 1" in error and "nothing moved" not in error, error
    else:
        try:
            own()
        except Failure as error:
            assert "root" in str(error), error
    expect_later_calls_to_match(rank, size)


@pytest.mark.parametrize("call, name", [
    (lambda root, rank, size: dist.broadcast(torch.ones(2), root), "broadcast"),
    (scatter_from, "scatter")], ids=["broadcast", "scatter"])
def test_two_take_each_other_for_the_root(call, name, rank, size):
    """Nobody sends."""
    error = error_of(lambda: call(1 if rank == 0 else 0, rank, size))
    assert re.search(rf"rank \d called {name}\(.*root [01]'\), rank \d called "
                     rf"{name}\(.*root [01]'", error), error
    expect_later_calls_to_match(rank, size)


def test_a_root_that_is_no_rank(rank, size):
    """As a number of 64 bits, of which 32 name rank 0."""
    calls = (lambda root: dist.broadcast(torch.ones(1), root),
             lambda root: dist.reduce(torch.ones(1), root),
             lambda root: gather_to(root, rank, size), lambda root: scatter_from(root, rank, size))
    for call in calls:
        for root in (size, 2**32):
            with pytest.raises((ValueError, RuntimeError, OverflowError), match="root|rank|range"):
                call(root)
    expect_later_calls_to_match(rank, size)


def gathered(count, size):
    with dist._coalescing_manager():
        for _ in range(count):
            dist.all_gather_into_tensor(torch.empty(size), torch.ones(1))


def scattered(count, size):
    with dist._coalescing_manager():
        for _ in range(count):
            dist.reduce_scatter_tensor(torch.empty(1), torch.ones(size))


def reduced(count, size):
    with dist._coalescing_manager():
        for _ in range(count):
            dist.all_reduce(torch.ones(1))


def listed(count, size):
    dist.all_reduce_coalesced([torch.ones(1)] * count)


@pytest.mark.parametrize("counts", [(1, 2), (3, 1), (4, 2)])
@pytest.mark.parametrize("call", [gathered, scattered, reduced, listed])
def test_numbers_of_tensors_that_differ(call, counts, rank, size):
    """They are one call: ranks go on together, whatever their numbers were."""
    error = error_of(lambda: call(counts[0] if rank == 0 else counts[1], size))
    assert re.search(r"tensor 1 of \d.*tensor 1 of \d", error), error
    expect_later_calls_to_match(rank, size)


def test_one_of_several_tensors_is_refused(rank, size):
    """The whole call is, before anything moves."""
    good, bad = torch.ones(4), torch.ones(4, 1).expand(4, 2)
    words = "rank 0, all_reduce_coalesced: expected a result each of whose elements has a place"
    with pytest.raises(ValueError if rank == 0 else Failure, match=words):
        dist.all_reduce_coalesced([good, bad if rank == 0 else torch.ones(4, 2), torch.ones(4)])
    assert rank != 0 or good.eq(1).all()
    expect_later_calls_to_match(rank, size)


def test_one_of_several_tensors_differs(rank, size):
    def call():
        dist.all_reduce_coalesced([torch.ones(4), torch.ones(3 if rank == 0 else 5), torch.ones(2)])
    error = error_of(call)
    assert re.search(r"allreduce\(float32\[[35]\], name '.*tensor 2 of 3'", error), error
    expect_later_calls_to_match(rank, size)
