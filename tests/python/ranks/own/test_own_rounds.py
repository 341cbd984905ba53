"""Rounds of algorithms of Python's: gathers of any lengths, and errors after a round's last call,
of which the other ranks hear in the next one."""

import copy

import pytest
import torch

import bluefog_cpp
import bluefog_cpp.torch as bf
from bluefog_cpp import topology_util
from conftest import needs
from simulation import flat, loss_of, model_of, train


@bf.register_algorithm
class Uneven(bf.Algorithm):
    """Gathers as many numbers of a rank as its own says."""

    name = "test_uneven"

    def step(self, round, buckets):
        for bucket in buckets:
            self.local_step(bucket)
        numbers = self.gather(torch.full((self.rank, 2), self.rank + 0.5))
        words = self.gather(torch.arange(100 - self.rank, dtype=torch.uint8))
        assert set(numbers) == set(words) == set(round.src_weights)
        for other in words:
            assert numbers[other].equal(torch.full((2 * other,), other + 0.5))
            assert words[other].equal(torch.arange(100 - other, dtype=torch.uint8))
            words[other].zero_()  # memory of its own

    def calls_due(self):
        return 2


def wrapped(model, name, size, **options):
    return bf.DecentralizedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model, name, bucket_bytes=64,
        schedule=topology_util.FullyConnectedGraph(size), **options)


def test_gathers_of_unequal_lengths(rank, size):
    model = model_of(rank)
    train(model, wrapped(model, "test_uneven", size), rank, 3)


@bf.register_algorithm
class Unlike(bf.Algorithm):
    """Ranks whose tensors do not go together."""

    name = "test_unlike"
    call = staticmethod(lambda self: None)

    def step(self, round, buckets):
        for bucket in buckets:
            self.local_step(bucket)
        Unlike.call(self)

    def calls_due(self):
        return 1


@pytest.mark.parametrize("call, words", (
    (lambda self: self.gather(torch.ones(3, dtype=(torch.float32, torch.float64)[self.rank % 2])),
     r"float32.*float64|float64.*float32"),
    (lambda self: self.average(torch.ones(3 + self.rank)), r"float32\[\d\].*float32\[\d\]"),
    (lambda self: self.average(torch.ones(3 + self.rank), over="all"),
     r"float32\[\d\].*float32\[\d\]")))
def test_tensors_that_do_not_go_together(call, words, rank, size, monkeypatch):
    needs(2)
    monkeypatch.setattr(Unlike, "call", staticmethod(call))
    model = model_of(rank)
    optimizer = wrapped(model, "test_unlike", size)
    with pytest.raises(bluefog_cpp.MismatchError, match=words):
        optimizer.step()
    bf.barrier()


@bf.register_algorithm
class Late(bf.Algorithm):
    """Adapt-then-combine with a mistake after all calls of a round, on rank 1 alone."""

    name = "test_late"
    state = ("v",)
    mistake = ""
    """The method that makes it."""

    def makes(self, method):
        if self.rank == 1 and Late.mistake == method:
            Late.mistake = ""
            raise ZeroDivisionError(f"in {method}")

    def step(self, round, buckets):
        for bucket in buckets:
            self.local_step(bucket)
            self.average(bucket)
        self.makes("step")

    def step_alone(self, buckets):
        super().step_alone(buckets)
        self.makes("step_alone")

    def restart(self):
        self.makes("restart")


def step(model, optimizer, rank):
    optimizer.zero_grad()
    loss_of(model, rank).backward()
    optimizer.step()


def make_the_mistake(method, model, optimizer, rank):
    """On rank 1 an error leaves the call; the others do not hear of it yet."""
    Late.mistake = method
    call = optimizer.restart if method == "restart" else lambda: step(model, optimizer, rank)
    if rank == 1:
        with pytest.raises(ZeroDivisionError, match=f"in {method}"):
            call()
    else:
        call()
    Late.mistake = ""


def expect_to_hear(method, call, rank):
    reason = f"rank 1, test_late, {method}: ZeroDivisionError: in {method}"
    kind, words = ((bluefog_cpp.StateError, f"rank 1, test_late, round .*no error since.*{reason}")
                   if rank == 1 else (bluefog_cpp.PeerFailure, f"{reason}.*after its last call"))
    with pytest.raises(kind, match=words):
        call()


@pytest.mark.parametrize("method, period", (("step", 1), ("step", 3), ("step_alone", 3),
                                            ("restart", 1), ("restart", 3)))
def test_errors_after_the_last_call_are_heard_in_the_next_round(method, period, rank, size):
    needs(2)
    model = model_of(rank)
    optimizer = wrapped(model, "test_late", size, num_steps_per_communication=period)
    train(model, optimizer, rank, period if method == "step_alone" else 2 * period - 1)
    made = optimizer._distributed.core.step_count
    make_the_mistake(method, model, optimizer, rank)
    made += method != "restart"
    assert optimizer._distributed.core.step_count == made
    for _ in range(period - 1 - made % period):
        step(model, optimizer, rank)  # alone
    expect_to_hear(method, lambda: step(model, optimizer, rank), rank)
    optimizer.restart()
    train(model, optimizer, rank, 2 * period)
    values = flat(model)
    torch.testing.assert_close(bf.allreduce(values), values, rtol=0, atol=1e-12)


def test_a_step_that_is_refused_is_that_round(rank, size):
    needs(2)
    model = model_of(rank)
    optimizer = wrapped(model, "test_late", size, num_steps_per_communication=2)
    train(model, optimizer, rank, 2)
    make_the_mistake("step_alone", model, optimizer, rank)
    if rank == 1:
        optimizer.refuse_step("no batch")
    else:
        expect_to_hear("step_alone", lambda: step(model, optimizer, rank), rank)
    optimizer.restart()
    make_the_mistake("step_alone", model, optimizer, rank)
    if rank == 1:
        optimizer.restart()
    expect_to_hear("step_alone", lambda: step(model, optimizer, rank), rank)
    train(model, optimizer, rank, 2)
    values = flat(model)
    torch.testing.assert_close(bf.allreduce(values), values, rtol=0, atol=1e-12)


def test_ranks_that_load_afterwards_go_on_together(rank, size):
    needs(2)
    model = model_of(rank)
    optimizer = wrapped(model, "test_late", size)
    train(model, optimizer, rank, 2)
    saved = copy.deepcopy(optimizer.state_dict())
    make_the_mistake("step", model, optimizer, rank)
    if rank != 1:
        expect_to_hear("step", lambda: step(model, optimizer, rank), rank)
    optimizer.load_state_dict(saved)
    train(model, optimizer, rank, 2)
    values = flat(model)
    torch.testing.assert_close(bf.allreduce(values), values, rtol=0, atol=1e-12)


def test_errors_that_others_have_heard_are_told_once(rank, size):
    """One of a call, or with calls still to make."""
    needs(2)
    model = model_of(rank)
    optimizer = wrapped(model, "test_unlike", size)

    def call(self):
        if self.rank == 1:
            raise LookupError("before its call")
        self.average(self.buckets[0])

    Unlike.call = staticmethod(call)
    with pytest.raises(LookupError if rank == 1 else bluefog_cpp.PeerFailure,
                       match="before its call"):
        optimizer.step()
    Unlike.call = staticmethod(lambda self: self.average(self.buckets[0]))
    train(model, optimizer, rank, 2)
    bf.barrier()
