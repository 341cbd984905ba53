"""Adapt-then-combine and adapt-with-combine around Adam's family whose moments are averaged with
the parameters."""

import copy

import pytest
import torch

import bluefog_cpp
import bluefog_cpp.torch as bf
from bluefog_cpp import topology_util
from conftest import needs
from simulation import flat, loss_of, mixing, model_of

MAKERS = {
    "Adam": lambda parameters: torch.optim.Adam(parameters, lr=0.02),
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, lr=0.02, weight_decay=0.3),
    "NAdam": lambda parameters: torch.optim.NAdam(parameters, lr=0.02),
    "RAdam": lambda parameters: torch.optim.RAdam(parameters, lr=0.02),
    "AccumAdam": lambda parameters: bf.AccumAdam(parameters, lr=0.02, accumulation=2),
}
MOMENTS = {1: ("exp_avg",), 2: ("exp_avg", "exp_avg_sq")}


def train(model, optimizer, rank, steps):
    for step in steps:
        optimizer.zero_grad()
        loss_of(model, rank, step).backward()
        optimizer.step()


def wrapped(model, make, size, moments, algorithm="atc"):
    return bf.DecentralizedOptimizer(make(model.parameters()), model, algorithm, bucket_bytes=64,
                                     schedule=topology_util.ExponentialGraph(size),
                                     numbers={"average_moments": moments})


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("moments", MOMENTS)
@pytest.mark.parametrize("algorithm", ("atc", "awc"))
def test_moments_are_averaged_with_the_parameters(maker, moments, algorithm, rank, size):
    make = MAKERS[maker]
    weights = torch.as_tensor(mixing(topology_util.ExponentialGraph(size)))[rank]
    model, plain_model = model_of(rank), model_of(rank)
    optimizer = wrapped(model, make, size, moments, algorithm)
    plain = make(plain_model.parameters())

    def average(value):
        value.copy_(torch.tensordot(weights, bf.allgather(value.unsqueeze(0)), 1))

    def average_all():
        for parameter in plain_model.parameters():
            average(parameter.data)
            for name in MOMENTS[moments] if parameter in plain.state else ():
                average(plain.state[parameter][name])

    for step in range(6):
        train(model, optimizer, rank, [step])
        plain.zero_grad()
        loss_of(plain_model, rank, step).backward()
        if algorithm == "awc":
            average_all()
        plain.step()
        if algorithm == "atc":
            average_all()
        torch.testing.assert_close(flat(model), flat(plain_model), rtol=0, atol=1e-12)
    for parameter, other in zip(model.parameters(), plain_model.parameters()):
        for name in ("exp_avg", "exp_avg_sq") if other.grad is not None else ():
            torch.testing.assert_close(optimizer.state[parameter][name], plain.state[other][name],
                                       rtol=0, atol=1e-12)


def test_a_run_that_resumes_has_the_same_bits(rank, size):
    models = [model_of(rank), model_of(rank)]
    first, second = (wrapped(model, MAKERS["AdamW"], size, 2) for model in models)
    train(models[0], first, rank, range(3))
    models[1].load_state_dict(models[0].state_dict())
    second.load_state_dict(copy.deepcopy(first.state_dict()))  # torch would share its tensors
    for model, optimizer in zip(models, (first, second)):
        train(model, optimizer, rank, range(3, 6))
    assert flat(models[0]).equal(flat(models[1]))


def test_optimizers_without_moments_are_refused_on_all_ranks(rank, size):
    needs(2)
    with pytest.raises(bluefog_cpp.InvalidArgument,
                       match="average_moments 1: expected an optimizer with moments, Adam, AdamW"):
        wrapped(model_of(0), lambda parameters: torch.optim.SGD(parameters, lr=0.1), size, 1)
    # Ranks that have some hear of one that has none.
    expected = bluefog_cpp.PeerFailure if rank == 0 else bluefog_cpp.InvalidArgument
    with pytest.raises(expected, match="average_moments 2: expected an optimizer with moments"):
        make = MAKERS["Adam"] if rank == 0 else lambda parameters: torch.optim.SGD(parameters, 0.1)
        wrapped(model_of(0), make, size, 2)
