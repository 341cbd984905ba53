"""Algorithms of Python's that fail on one rank: it raises its own error, the others hear of it, and
all go on together."""

import threading
import time

import pytest
import torch

import bluefog_cpp
import bluefog_cpp.torch as bf
from bluefog_cpp import topology_util
from conftest import needs
from simulation import flat, loss_of, model_of, train


@bf.register_algorithm
class Failing(bf.Algorithm):
    """Adapt-then-combine, with a mistake in round 1 on rank 1."""

    name = "test_failing"
    mistake = staticmethod(lambda self, bucket: None)
    """Called in the middle of the round."""

    def step(self, round, buckets):
        for bucket in buckets:
            self.local_step(bucket)
            if round.index == 1 and self.rank == 1:
                Failing.mistake(self, bucket)
            self.average(bucket)


def in_the_middle(mistake):
    def make(algorithm, bucket):
        if bucket.index == 1:
            mistake(algorithm, bucket)
    make.__name__ = mistake.__name__
    return make


@in_the_middle
def divide(algorithm, bucket):
    return bucket.index // 0


@in_the_middle
def leave_out(algorithm, bucket):
    algorithm.average = lambda values: None


@in_the_middle
def step_again(algorithm, bucket):
    algorithm.local_step(bucket)


@in_the_middle
def average_text(algorithm, bucket):
    algorithm.average("values")


@in_the_middle
def average_integers(algorithm, bucket):
    algorithm.average(torch.ones(3, dtype=torch.int64))


@in_the_middle
def average_columns(algorithm, bucket):
    algorithm.average(torch.ones(4, 4)[:, 0])


@in_the_middle
def average_over_some(algorithm, bucket):
    algorithm.average(bucket, over="some")


MISTAKES = (
    (divide, ZeroDivisionError, "by zero"),
    (leave_out, bluefog_cpp.StateError, "averages and gathers .*`calls_due`.*, found 5 and 1"),
    (step_again, bluefog_cpp.StateError, "each of 5 buckets once, in their order, found bucket 1"),
    (average_text, TypeError, "values: expected a bucket or a torch.Tensor, found str"),
    (average_integers, ValueError, r"expected values of a floating dtype, found int64\[3\]"),
    (average_columns, ValueError, "expected a contiguous tensor"),
    (average_over_some, ValueError, "over: expected one of neighbors, all, found 'some'"),
)


@pytest.mark.parametrize("give", [
    lambda tensor: setattr(tensor, "data", torch.full_like(tensor, 7.0)),
    lambda tensor: tensor.set_(torch.zeros_like(tensor))])
def test_values_in_other_memory(give, rank, size, monkeypatch):
    needs(2)
    monkeypatch.setattr(Failing, "mistake",
                        staticmethod(lambda algorithm, bucket: give(bucket.values)))
    model = model_of(rank)
    optimizer = bf.DecentralizedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model, "test_failing", bucket_bytes=64,
        schedule=topology_util.FullyConnectedGraph(size))
    train(model, optimizer, rank, 1)
    loss_of(model, rank, 1).backward()
    if rank == 1:
        with pytest.raises(bluefog_cpp.StateError, match="values of bucket .* written in place"):
            optimizer.step()
    else:
        optimizer.step()
    values = flat(model)
    assert values.isfinite().all() and not (values == 7.0).any()
    with pytest.raises(bluefog_cpp.StateError if rank == 1 else bluefog_cpp.PeerFailure,
                       match="written in place"):
        train(model, optimizer, rank, 1)
    bf.barrier()


@pytest.mark.parametrize("mistake, kind, words", MISTAKES, ids=[m[0].__name__ for m in MISTAKES])
def test_a_mistake_on_one_rank(mistake, kind, words, rank, size, monkeypatch):
    needs(2)
    monkeypatch.setattr(Failing, "mistake", staticmethod(mistake))
    model = model_of(rank)
    optimizer = bf.DecentralizedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model, "test_failing", bucket_bytes=64,
        schedule=topology_util.FullyConnectedGraph(size))
    assert optimizer._distributed.core.bucket_count == 5
    train(model, optimizer, rank, 1)
    loss_of(model, rank, 1).backward()
    if rank == 1:
        with pytest.raises(kind, match=words):
            optimizer.step()
        optimizer._distributed.core.restart()  # on all ranks
    else:
        with pytest.raises(bluefog_cpp.PeerFailure, match="rank 1.*test_failing"):
            optimizer.step()
        optimizer._distributed.core.restart()
    monkeypatch.setattr(Failing, "mistake", staticmethod(lambda self, bucket: None))
    if mistake is not leave_out:  # which has spoilt the object
        train(model, optimizer, rank, 2)
        values = flat(model)
        torch.testing.assert_close(bf.allreduce(values), values, rtol=0, atol=1e-12)
    bf.barrier()


def test_a_call_too_many(rank, monkeypatch):
    needs(2)

    def once_more(algorithm, bucket):
        if bucket.index == 4:  # before the last one, so that others have all theirs
            algorithm.average(bucket)

    monkeypatch.setattr(Failing, "mistake", staticmethod(once_more))
    model = model_of(rank)
    optimizer = bf.DecentralizedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model,
                                          "test_failing", bucket_bytes=64)
    train(model, optimizer, rank, 1)
    if rank == 1:
        with pytest.raises(bluefog_cpp.StateError,
                           match="rank 1, test_failing, round 1, average: expected 5 averages and "
                                 "gathers .*one more"):
            optimizer.step()
    else:
        optimizer.step()
    # The others have had all calls of that round: they hear in the next one.
    with pytest.raises(bluefog_cpp.StateError if rank == 1 else bluefog_cpp.PeerFailure,
                       match="rank 1, test_failing, (step|round 2).*one more"):
        train(model, optimizer, rank, 1)
    train(model, optimizer, rank, 2)
    bf.barrier()


def test_calls_outside_of_a_step(rank):
    kept = []

    @bf.register_algorithm
    class Leaking(bf.Algorithm):
        name = "test_leaking"

        def step(self, round, buckets):
            for bucket in buckets:
                self.local_step(bucket)
                kept.append(self.average_nonblocking(bucket))
            kept.append(self)

        def step_alone(self, buckets):
            super().step_alone(buckets)
            with pytest.raises(bluefog_cpp.StateError, match="a step that does not communicate"):
                self.average(buckets[0])

    model = model_of(0)
    optimizer = bf.DecentralizedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model,
                                          "test_leaking", num_steps_per_communication=2)
    train(model, optimizer, rank, 2)
    values = kept[0].wait()
    assert values is kept[-1].buckets[0].values  # its step has waited for it
    for call in (lambda: kept[-1].average(values), lambda: kept[-1].gather(values),
                 lambda: kept[-1].local_step(kept[-1].buckets[0])):
        with pytest.raises(bluefog_cpp.StateError, match=f"rank {rank}, test_leaking, .*outside"):
            call()


def expect_a_failure_of_rank_1(words, name, rank):
    """An optimizer cannot be made there, and the others hear why."""
    model = model_of(0)
    kind, match = ((LookupError, words) if rank == 1 else
                   (bluefog_cpp.PeerFailure, f"rank 1.*LookupError: {words}"))
    with pytest.raises(kind, match=match):
        bf.DecentralizedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model, name)
    bf.barrier()


@pytest.mark.parametrize("where", ("__init__", "restart", "calls_due"))
def test_an_object_that_one_rank_cannot_make(where, rank):
    needs(2)

    def fails(self):
        if bf.rank() == 1:
            raise LookupError("no such thing")
        return None if where == "__init__" else 1

    bf.register_algorithm(type("Unmade", (Failing,), {
        "name": "test_unmade", where: fails, "__module__": where}) if where == "__init__" else
        type("Unmade", (Failing,), {"name": f"test_unmade_{where}", where: fails}))
    name = "test_unmade" if where == "__init__" else f"test_unmade_{where}"
    expect_a_failure_of_rank_1("no such thing", name, rank)


def test_classes_that_differ_between_ranks(rank):
    needs(2)
    bf.register_algorithm(type("Differs", (Failing,), {
        "name": "test_differs", "state": ("v", *(("w",) if rank == 1 else ()))}))
    model = model_of(0)
    with pytest.raises(bluefog_cpp.MismatchError, match="test_differs.*state v"):
        bf.DecentralizedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model,
                                  "test_differs")
    bf.barrier()


def test_first_values_that_differ_between_ranks(rank):
    needs(2)
    bf.register_algorithm(type("Starts", (Failing,), {
        "name": "test_starts", "scalars": {"weight": 1.0 + (rank == 1)}}))
    model = model_of(0)
    with pytest.raises(bluefog_cpp.MismatchError,
                       match="rank 0 has scalars weight from 1, rank 1 has scalars weight from 2"):
        bf.DecentralizedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model,
                                  "test_starts")
    bf.barrier()


def test_a_name_that_one_rank_does_not_know(rank):
    needs(2)
    if rank == 0:
        bf.register_algorithm(type("Alone", (Failing,), {"name": "test_alone"}))
    model = model_of(0)
    kind, words = ((bluefog_cpp.PeerFailure, "rank ., DecentralizedOptimizer: algorithm: expected")
                   if rank == 0 else (bluefog_cpp.InvalidArgument, "found 'test_alone'"))
    with pytest.raises(kind, match=words):
        bf.DecentralizedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model, "test_alone")
    bf.barrier()


def test_other_threads_run_while_a_rank_waits(rank, size):
    needs(2)
    counts, ends = [0], threading.Event()

    @bf.register_algorithm
    class Waiting(bf.Algorithm):
        name = "test_waiting"
        state = ("counted",)

        def step(self, round, buckets):
            for bucket in buckets:
                self.local_step(bucket)
                if self.rank == 0 and bucket.index == 0:
                    time.sleep(0.2)
                before = counts[0]
                self.average(bucket)
                bucket.state["counted"].fill_(counts[0] - before)

    def count():
        while not ends.is_set():
            counts[0] += 1
            time.sleep(0)

    def meet():
        for _ in range(20):
            bf.allreduce(torch.ones(3))

    model = model_of(rank)
    optimizer = bf.DecentralizedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model, "test_waiting",
        schedule=topology_util.FullyConnectedGraph(size))
    threads = [threading.Thread(target=count), threading.Thread(target=meet)]
    for thread in threads:
        thread.start()
    train(model, optimizer, rank, 3)
    threads[1].join()
    ends.set()
    threads[0].join()
    counted = dict(optimizer._distributed.core.carried())["counted of bucket 0"]
    assert rank == 0 or counted[0] > 0
    values = flat(model)
    torch.testing.assert_close(bf.allreduce(values), values, rtol=0, atol=1e-12)


@pytest.mark.parametrize("where", ("default_schedule", "transform"))
def test_a_graph_that_one_rank_cannot_make(where, rank):
    needs(2)

    def fails(given):
        if bf.rank() == 1:
            raise LookupError("no such graph")
        return given if where == "transform" else bf.RingGraph(given)

    name = f"test_ungraphed_{where}"
    bf.register_algorithm(type("Ungraphed", (Failing,), {"name": name,
                                                         where: staticmethod(fails)}))
    expect_a_failure_of_rank_1("no such graph", name, rank)
