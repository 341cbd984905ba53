"""What algorithms of Python's assign to the tensors that they carry."""

import copy

import pytest
import torch

import bluefog_cpp
import bluefog_cpp.torch as bf
from simulation import flat, model_of, train


class Spelled(bf.Algorithm):
    """Heavy ball and a count, each written by `assign`."""

    state = ("momentum",)
    scalars = {"steps": 0.0}

    def step(self, round, buckets):
        self.assign(self.scalars, "steps", self.scalars["steps"] + 1)
        for bucket in buckets:
            momentum = 0.5 * bucket.state["momentum"] + bucket.gradient()
            self.assign(bucket.state, "momentum", momentum)
            self.local_step(bucket)
            bucket.values.sub_(0.01 * bucket.state["momentum"] / self.scalars["steps"])
            self.average(bucket)


@bf.register_algorithm
class Assigned(Spelled):
    name = "test_assigned"

    def assign(self, tensors, name, value):
        tensors[name] = value


@bf.register_algorithm
class Copied(Spelled):
    name = "test_copied"

    def assign(self, tensors, name, value):
        tensors[name].copy_(value)


@bf.register_algorithm
class Strange(bf.Algorithm):
    name = "test_strange"
    state = ("momentum",)
    scalars = {"steps": 0.0}
    what = None

    def step(self, round, buckets):
        for bucket in buckets:
            type(self).what(self, bucket)
            self.local_step(bucket)
            self.average(bucket)


def wrapped(model, name):
    return bf.DecentralizedOptimizer(torch.optim.SGD(model.parameters(), lr=0.05), model, name,
                                     bucket_bytes=64)


def test_assigned_values_are_carried(rank):
    ends = []
    for name in ("test_assigned", "test_copied"):
        model = model_of(rank)
        optimizer = wrapped(model, name)
        train(model, optimizer, rank, 4)
        kept, values = copy.deepcopy(optimizer.state_dict()), flat(model).clone()
        train(model, optimizer, rank, 3)
        ends.append(flat(model).clone())
        other = model_of(99)
        torch.nn.utils.vector_to_parameters(values, other.parameters())
        resumed = wrapped(other, name)
        resumed.load_state_dict(kept)
        train(other, resumed, rank, 3)
        assert flat(other).equal(ends[-1])
        carried = dict(optimizer._distributed.core.carried())
        assert carried["steps"].item() == 7
        optimizer.restart()
        assert all(not tensor.any() for tensor in carried.values())
    assert ends[0].equal(ends[1])


def test_numbers_and_sums_in_place_may_be_assigned(rank):
    def what(algorithm, bucket):
        bucket.state["momentum"] += 2
        bucket.state["momentum"] *= 2
        algorithm.scalars["steps"] = 3

    Strange.what = what
    model = model_of(rank)
    optimizer = wrapped(model, "test_strange")
    train(model, optimizer, rank, 1)
    for name, tensor in optimizer._distributed.core.carried():
        assert (tensor == (3 if name == "steps" else 4)).all(), name


def test_what_cannot_be_assigned(rank):
    for what, words in (
            (lambda algorithm, bucket: bucket.state.__setitem__("momentum", torch.zeros(3)),
             r"state, momentum: expected a tensor of \[\d+\], found .* \[3\]"),
            (lambda algorithm, bucket: bucket.state.__setitem__("moment", bucket.values),
             "has in `state`, momentum, found 'moment'"),
            (lambda algorithm, bucket: algorithm.scalars.__setitem__("steps", "three"),
             "scalars, steps: .*'three'"),
            (lambda algorithm, bucket: algorithm.average(torch.zeros(3, 2).t()),
             rf"rank {rank}, test_strange, average: values: expected a contiguous tensor")):
        Strange.what = what
        model = model_of(rank)
        optimizer = wrapped(model, "test_strange")
        with pytest.raises(bluefog_cpp.Error, match=words):
            train(model, optimizer, rank, 1)
        bf.barrier()
