"""Averages that go a part of the way, as the learning rate falls, or are made several times in a
step; the algorithms are tested in C++."""

import pytest
import torch

import bluefog_cpp
import bluefog_cpp.torch as bf
from bluefog_cpp import topology_util
from conftest import needs
from simulation import Simulation, flat, loss_of, mixing, model_of, train


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.5)


@pytest.mark.parametrize("algorithm", ("atc", "awc"))
def test_the_share_falls_with_the_rate_of_a_scheduler(algorithm, rank, size):
    graph = topology_util.ExponentialGraph(size)
    simulation = Simulation(sgd, size)
    model = model_of(0)
    optimizer = bf.DecentralizedOptimizer(
        sgd(model.parameters()), model, algorithm, schedule=graph, bucket_bytes=64,
        numbers={"consensus_step_size": 0.8, "consensus_decay": 2})
    schedulers = [torch.optim.lr_scheduler.ExponentialLR(each, 0.7)
                  for each in (*simulation.optimizers, optimizer)]
    for step in range(5):
        share = 0.8 * 0.7**(2 * step)
        part = (1 - share) * torch.eye(size).double() + share * torch.as_tensor(mixing(graph))
        simulation.gradients(step)
        optimizer.zero_grad()
        loss_of(model, rank, step).backward()
        if algorithm == "awc":
            simulation.average(part)
        simulation.local_steps()
        if algorithm == "atc":
            simulation.average(part)
        optimizer.step()
        for scheduler in schedulers:
            scheduler.step()
        torch.testing.assert_close(flat(model), flat(simulation.models[rank]), rtol=0, atol=1e-12)


def test_rounds_until_ranks_are_near(rank, size):
    needs(4)  # the ring of three has the exact mean

    def averages(bound):
        model = model_of(rank)
        optimizer = bf.DecentralizedOptimizer(
            sgd(model.parameters()), model, schedule="ring",
            numbers={"consensus_rounds": 8, "consensus_bound": bound})
        train(model, optimizer, rank, 4)
        made = dict(optimizer._distributed.core.carried())["averages made"]
        assert (bf.allgather(made) == made).all()
        return int(made)

    assert averages(1e6) == 4
    assert averages(1e-9) == 32
    assert 4 < averages(0.5) < 32


def test_wrong_numbers(rank):
    model = model_of(0)
    for numbers, words in (
            ({"consensus_step_size": 2.0}, "consensus_step_size: expected from 0.001 to below 2"),
            ({"consensus_bound": float("nan")}, "'consensus_bound': expected a finite number"),
            ({"consensus_bound": 0.5}, "expected consensus_rounds above 1"),
            ({"bucket_bytes": 1}, "numbers: expected options of adapt_then_combine, consensus_"),
            ({"consensus_rounds": 0}, "consensus_rounds: expected from 1 to below 1025, found 0")):
        with pytest.raises(bluefog_cpp.InvalidArgument, match=words):
            bf.DecentralizedOptimizer(sgd(model.parameters()), model, numbers=numbers)
