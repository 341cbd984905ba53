"""Replicas sum their gradients while the last backward pass goes on."""

import time

import pytest
import torch
import torch.distributed as dist
from test_elastic import all_stages, data, five_layers, loss, share

from bluefog_cpp.errors import InvalidArgument, StateError
from bluefog_cpp.pipeline import ElasticPipeline

WAIT_SEC = 20.0


def gradients(stages, bucket_bytes, steps=3):
    model = five_layers()
    pipe = ElasticPipeline(model, loss, stages=stages, micro_batches=4, bucket_bytes=bucket_bytes)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    found = []
    for step in range(steps):
        pipe.step(optimizer, *share(pipe, 11, data(11, step)), 11)
        found += [p.grad.clone() for _, p in pipe.trained_parameters()]
    return found


def test_buckets_change_no_bit():
    for stages in all_stages():
        whole = gradients(stages, 1 << 30)
        for bucket_bytes in (0, 300):
            found = gradients(stages, bucket_bytes)
            assert len(found) == len(whole)
            assert all(one.equal(other) for one, other in zip(found, whole))


class Watched(torch.autograd.Function):
    """The identity, whose backward pass calls a function."""

    @staticmethod
    def forward(ctx, values, call):
        ctx.call = call
        return values.clone()

    @staticmethod
    def backward(ctx, gradient):
        ctx.call()
        return gradient, None


class Watch(torch.nn.Module):
    call = staticmethod(lambda: None)

    def forward(self, values):
        return Watched.apply(values, lambda: self.call()) if values.requires_grad else values


def test_a_bucket_is_summed_before_the_backward_pass_ends():
    """The pass stays in front of the first layer until the sum of the last one's gradients has
    come: where sums followed the passes, it would wait in vain."""
    size = dist.get_world_size()
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), watch := Watch(), torch.nn.Linear(4, 2))
    model = model.double()
    pipe = ElasticPipeline(model, loss, stages=1, micro_batches=1, bucket_bytes=0)
    sent = []
    real = dist.all_reduce

    def noted(tensor, *args, **kwargs):
        work = real(tensor, *args, **kwargs)
        sent.append((tensor, work))
        return work

    seen = []

    def look():
        # The bias of the last layer has left first: of all ranks together it is known.
        end = time.monotonic() + WAIT_SEC
        while not (sent and sent[0][1].is_completed()) and time.monotonic() < end:
            time.sleep(1e-3)
        seen.append(sent[0][0].clone() if sent else None)

    watch.call = look
    dist.all_reduce = noted
    try:
        inputs = torch.ones(2, 4, dtype=torch.float64)
        targets = torch.zeros(2, 2, dtype=torch.float64) + dist.get_rank()
        pipe.compute_gradients(inputs, targets, 2)
    finally:
        dist.all_reduce = real
    assert len(seen) == 1 and seen[0] is not None
    found, = (part for part in seen)
    # The mean of squares over all elements: 2 (y - t) / 2 for each of the two outputs.
    outputs = model[2](model[0](inputs)).detach()[0]
    expected = torch.stack([(outputs - rank) for rank in range(size)]).mean(0)
    last = dict(pipe.trained_parameters())["2.weight"].grad if found.numel() != 2 else None
    if last is None:
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    else:
        assert found.equal(last.flatten())
    assert len(sent) == 4  # one for each parameter
    assert pipe.times.averaging_whole >= pipe.times.averaging > 0


class Again(torch.autograd.Function):
    """The identity, whose backward pass comes to a parameter once more, as a reentrant checkpoint
    does."""

    @staticmethod
    def forward(ctx, values, parameter):
        ctx.parameter = parameter
        return values.clone()

    @staticmethod
    def backward(ctx, gradient):
        with torch.enable_grad():
            ctx.parameter.sum().backward()
        return gradient, None


def test_a_gradient_that_changes_after_it_has_left_is_named():
    class Front(torch.nn.Module):
        parameter = None

        def forward(self, values):
            return Again.apply(values, self.parameter) if values.requires_grad else values

    front = Front()
    last = torch.nn.Linear(4, 2).double()
    model = torch.nn.Sequential(torch.nn.Linear(4, 4).double(), front, last)
    pipe = ElasticPipeline(model, loss, stages=1, micro_batches=1, bucket_bytes=0)
    front.__dict__["parameter"] = last.weight
    with pytest.raises(StateError, match=r"'2\.weight': its gradient changed after its sum"):
        pipe.compute_gradients(torch.ones(2, 4, dtype=torch.float64),
                               torch.zeros(2, 2, dtype=torch.float64), 2)


def test_buckets_of_less_than_nothing():
    with pytest.raises(InvalidArgument, match="buckets of 0 bytes or more, found -1"):
        ElasticPipeline(five_layers(), loss, stages=1, bucket_bytes=-1)
