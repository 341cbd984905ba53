"""The number of micro-batches that a trial finds: it changes nothing but that."""

import pytest
import torch
import torch.distributed as dist
from test_elastic import FEATURES, data, five_layers, loss, share

from bluefog_cpp.errors import InvalidArgument, MismatchError, PeerFailure
from bluefog_cpp.pipeline import ElasticPipeline, choose_micro_batches


def made(stages):
    """A pipeline, with buffers that passes change."""
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(FEATURES).double(), *five_layers())
    return model, ElasticPipeline(model, loss, stages=stages)


def values(model):
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def test_a_trial_changes_nothing_but_the_number():
    stages = dist.get_world_size()
    model, pipe = made(stages)
    rows = 16 * stages  # two at least in each micro-batch
    inputs, targets, own = share(pipe, rows, data(rows))
    before = values(model)
    chosen = choose_micro_batches(pipe, inputs, targets, own, rows)
    counts = [0] * stages
    dist.all_gather_object(counts, chosen)
    assert chosen in [stages * factor for factor in (1, 2, 4, 8)] and set(counts) == {chosen}
    for name, value in values(model).items():
        assert value.equal(before[name]), name
    assert all(parameter.grad is None for _, parameter in pipe.trained_parameters())
    assert choose_micro_batches(pipe, inputs, targets, own, rows, candidates=[4]) == 4
    pipe.compute_gradients(inputs, targets, own, rows)
    _, given = made(stages)
    given._wanted_micro_batches = 4
    given.compute_gradients(inputs, targets, own, rows)
    for (name, found), (_, expected) in zip(pipe.trained_parameters(),
                                            given.trained_parameters()):
        assert found.grad.equal(expected.grad), name


def test_candidates_that_cannot_be():
    size, rank = dist.get_world_size(), dist.get_rank()
    _, pipe = made(size)
    inputs, targets, own = share(pipe, 8, data(8))
    expected = InvalidArgument if rank == size - 1 else PeerFailure
    with pytest.raises(expected, match="expected at least 1 micro-batch, found 0"):
        choose_micro_batches(pipe, inputs, targets, own, candidates=[2, 0] if rank == size - 1
                             else [2])
    if size > 1:
        with pytest.raises(MismatchError, match=r"trials of \[1\] micro-batches"):
            choose_micro_batches(pipe, inputs, targets, own, candidates=[1 + (rank == 0)])
    assert choose_micro_batches(pipe, inputs, targets, own, candidates=[2]) == 2
