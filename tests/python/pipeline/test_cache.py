"""Outputs of frozen layers that are computed once."""

import pytest
import torch
import torch.distributed as dist
from test_elastic import TOLERANCE, data, five_layers, loss

from bluefog_cpp.errors import InvalidArgument, PeerFailure
from bluefog_cpp.pipeline import CacheOptions, ElasticPipeline, EpochShares

SAMPLES = 40
ROW_BYTES = 64  # of 8 float64 values


def options(memory_rows, **more):
    return CacheOptions(SAMPLES, memory_rows * ROW_BYTES, **more)


class Counted(torch.nn.Module):
    """A layer that counts the rows that it computes."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer
        self.rows = 0

    def forward(self, values):
        self.rows += len(values) if values.any() else 0  # torch finds out shapes with zeros
        return self.layer(values)


class Run:
    """Epochs of a pipeline, with a cache or without."""

    def __init__(self, stages, cache=None):
        self.model = five_layers()
        self.first = Counted(self.model[0])
        self.model[0] = self.first
        self.pipe = ElasticPipeline(self.model, loss, stages=stages, micro_batches=3, cache=cache)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.05, momentum=0.9)
        self.shares = EpochShares(SAMPLES, 12, seed=4)
        self.inputs, self.targets = data(SAMPLES)

    def epoch(self, number):
        """The rows of all ranks that came from the cache, that went on from an earlier depth, and
        that the first layer computed."""
        self.shares.begin_epoch(number)
        before = self.first.rows
        cached = resumed = 0
        while self.shares.left:
            all_rows, own = self.shares.next(self.pipe.replicas, self.pipe.replica)
            self.pipe.step(self.optimizer, self.inputs[own], self.targets[own], len(own), all_rows,
                           own)
            cached += self.pipe.cached_rows
            resumed += self.pipe.resumed_rows
        found = torch.tensor([cached, resumed, self.first.rows - before])
        dist.all_reduce(found)
        return found.tolist()

    def rearrange(self, stages, frozen):
        self.pipe.rearrange(stages, frozen, self.optimizer)


def expect_same(one, other):
    expected = dict(other.pipe.trained_parameters())
    assert expected
    for name, parameter in one.pipe.trained_parameters():
        torch.testing.assert_close(parameter.detach(), expected[name].detach(), rtol=0,
                                   atol=TOLERANCE, msg=name)


def test_training_is_what_it_is_without_them(tmp_path):
    stages = dist.get_world_size() // 2
    plain = Run(stages)
    cached = Run(stages, options(SAMPLES // 2, disk_bytes=1 << 20, folder=str(tmp_path)))
    assert cached.epoch(0)[0] == 0
    plain.epoch(0)
    for place, (wanted, frozen) in enumerate(((stages, 2), (1, 4))):
        plain.rearrange(wanted, frozen)
        for number in range(3):
            cached.rearrange(wanted, frozen)  # which it has, from the second epoch on
            plain.epoch(number)
            found, resumed, computed = cached.epoch(number)
            # Whichever pipeline has a sample in an epoch finds what another one has stored.
            assert found == (SAMPLES if number else 0)
            first = SAMPLES - resumed if not number else 0
            assert computed == first
            # The first rows of each pipeline show what form they have.
            assert (resumed > 0) == (place > 0 and not number)
    expect_same(cached, plain)


def test_the_very_bytes_come_back():
    run = Run(1, options(SAMPLES))
    run.rearrange(1, 2)
    shown = []
    layer = run.model[2]
    layer.register_forward_pre_hook(lambda _, given: shown.append(given[0].detach().clone()))

    def outputs(number):
        shown.clear()
        run.epoch(number)
        return torch.cat(shown)

    first = outputs(0)
    again = outputs(0)  # the same order, of samples and micro-batches
    assert run.pipe.cached_rows > 0
    assert again.equal(first)


def test_other_frozen_parameters_make_them_stale():
    run = Run(1, options(SAMPLES))
    run.rearrange(1, 2)
    run.epoch(0)
    assert run.epoch(1)[0] == SAMPLES
    with torch.no_grad():
        run.model[0].layer.weight.add_(1)
    assert run.epoch(2)[0] == 0


def test_another_depth_gives_them_up():
    """What is stored at a depth is no output of another: it is computed on from there."""
    run, plain = Run(1, options(SAMPLES)), Run(1)
    for frozen in (2, 3):
        for one in (run, plain):
            one.rearrange(1, frozen)
        cached, resumed, _ = run.epoch(0)
        plain.epoch(0)
        assert cached == 0
        assert (resumed > 0) == (frozen == 3)
    expect_same(run, plain)


def test_rows_without_numbers_are_not_kept():
    run = Run(1, options(SAMPLES))
    run.rearrange(1, 2)
    for _ in range(2):
        run.pipe.step(run.optimizer, run.inputs, run.targets, SAMPLES)
        assert run.pipe.cached_rows == 0


def test_numbers_that_do_not_fit_are_refused():
    for samples, found in (([1], "found 1"), ([1, SAMPLES], f"found 2, {SAMPLES} among them")):
        run = Run(1, options(SAMPLES))
        with pytest.raises(InvalidArgument, match=f"numbers of 2 samples, from 0 to 39, {found}"):
            run.pipe.compute_gradients(run.inputs[:2], run.targets[:2], 2, None, samples)


def test_what_makes_no_cache_is_refused():
    with pytest.raises(InvalidArgument, match="expected at least 1 sample"):
        Run(1, CacheOptions(0, 0))
    with pytest.raises((InvalidArgument, PeerFailure), match="expected a folder for the file"):
        Run(1, CacheOptions(1, 0, disk_bytes=1))
