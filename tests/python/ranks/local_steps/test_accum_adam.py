"""AccumAdam and AccumAdamW: their equations, and as the local step of algorithms."""

import copy
import math

import pytest
import torch

import bluefog_cpp
import bluefog_cpp.torch as bf
from bluefog_cpp import topology_util
from simulation import Simulation, flat, loss_of, mixing, model_of, train

OPTIONS = {"lr": 0.01, "betas": (0.9, 0.98), "eps": 1e-6, "weight_decay": 0.1}
PAIRS = ((bf.AccumAdam, torch.optim.Adam), (bf.AccumAdamW, torch.optim.AdamW))


@pytest.mark.parametrize("own, torchs", PAIRS)
@pytest.mark.parametrize("dtype", (torch.float64, torch.float32, torch.bfloat16))
def test_accumulation_of_one_is_adam_bit_for_bit(own, torchs, dtype, rank):
    values = []
    for optimizer_of in (lambda p: own(p, **OPTIONS, accumulation=1),
                         lambda p: torchs(p, **OPTIONS, foreach=False)):
        model = torch.nn.Linear(5, 3).to(dtype)
        generator = torch.Generator().manual_seed(rank)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator))
        optimizer = optimizer_of(model.parameters())
        for _ in range(20):
            optimizer.zero_grad()
            model(torch.randn(4, 5, generator=generator).to(dtype)).square().mean().backward()
            optimizer.step()
        values.append(flat(model))
    assert values[0].equal(values[1])


@pytest.mark.parametrize("own, decouples", ((bf.AccumAdam, False), (bf.AccumAdamW, True)))
def test_equations(own, decouples, rank):
    x = torch.nn.Parameter(torch.tensor([1.0, -2.0], dtype=torch.float64))
    optimizer = own([x], **OPTIONS, accumulation=3)
    b1, b2 = OPTIONS["betas"]
    expected, m, v, seen = x.detach().clone(), 0.0, 0.0, []
    for step in range(1, 11):
        gradient = torch.tensor([math.sin(step + rank), 0.3 * step], dtype=torch.float64)
        x.grad = gradient.clone()
        if decouples:
            expected = (1 - OPTIONS["lr"] * OPTIONS["weight_decay"]) * expected
        else:
            gradient = gradient + OPTIONS["weight_decay"] * expected
        seen.append(gradient)
        changes = math.ceil(step / 3)
        m_hat = (b1 * m + (1 - b1) * gradient) / (1 - b1**changes)
        v_hat = (b2 * v + (1 - b2) * gradient**2) / (1 - b2**changes)
        expected = expected - OPTIONS["lr"] * m_hat / (v_hat.sqrt() + OPTIONS["eps"])
        if step % 3 == 0:
            mean = sum(seen) / 3
            m, v, seen = b1 * m + (1 - b1) * mean, b2 * v + (1 - b2) * mean**2, []
        optimizer.step()
        torch.testing.assert_close(x.detach(), expected, rtol=0, atol=1e-12)
        frozen = torch.as_tensor(m, dtype=torch.float64).expand(2)
        torch.testing.assert_close(optimizer.state[x]["exp_avg"], frozen, rtol=0, atol=1e-12)


@pytest.mark.parametrize("own, decouples", ((bf.AccumAdam, False), (bf.AccumAdamW, True)))
def test_as_the_local_step_of_algorithms(own, decouples, rank, size):
    """Decay comes before the average."""
    graph = topology_util.ExponentialGraph(size)

    def make(parameters):
        return own(parameters, lr=0.02, weight_decay=0.2, accumulation=2)

    simulation = Simulation(make, size)
    model = model_of(0)
    optimizer = bf.DecentralizedOptimizer(make(model.parameters()), model, "atc", schedule=graph,
                                          bucket_bytes=64)
    for step in range(6):
        simulation.gradients(step)
        simulation.local_steps()
        simulation.average(mixing(graph))
        optimizer.zero_grad()
        loss_of(model, rank, step).backward()
        optimizer.step()
        torch.testing.assert_close(flat(model), flat(simulation.models[rank]), rtol=0, atol=1e-12)


def test_full_averages_and_equal_data_are_adam_alone(rank, size):
    """W = J and equal state: what one rank does alone."""
    alone, model = model_of(0), model_of(0)
    plain = bf.AccumAdamW(alone.parameters(), lr=0.02)
    optimizer = bf.DecentralizedOptimizer(bf.AccumAdamW(model.parameters(), lr=0.02), model,
                                          schedule=topology_util.FullyConnectedGraph(size))
    for step in range(6):
        for each, which in ((plain, alone), (optimizer, model)):
            each.zero_grad()
            loss_of(which, 0, step).backward()
            each.step()
    assert flat(model).equal(flat(alone))


def test_state_goes_on_with_the_same_bits(rank):
    model = model_of(rank)
    optimizer = bf.DecentralizedOptimizer(bf.AccumAdamW(model.parameters(), accumulation=3), model)
    train(model, optimizer, rank, 4)
    kept, values = copy.deepcopy(optimizer.state_dict()), flat(model)
    train(model, optimizer, rank, 4)
    other = model_of(rank)
    torch.nn.utils.vector_to_parameters(values, other.parameters())
    resumed = bf.DecentralizedOptimizer(bf.AccumAdamW(other.parameters(), accumulation=3), other)
    resumed.load_state_dict(kept)
    train(other, resumed, rank, 4)
    assert flat(other).equal(flat(model))


@pytest.mark.parametrize("options, words", (
    ({"lr": -1.0}, "lr: expected 0 or more, found -1"),
    ({"lr": "x"}, "lr: expected a number"),
    ({"eps": float("nan")}, "eps: expected a finite number"),
    ({"betas": (0.9, 1.0)}, "betas: expected numbers from 0 to below 1, found 1.0"),
    ({"betas": 0.9}, "betas: expected two numbers, found 0.9"),
    ({"weight_decay": -0.1}, "weight_decay: expected 0 or more"),
    ({"accumulation": 0}, "accumulation: expected 1 or more, found 0"),
    ({"accumulation": 1.5}, "accumulation: expected a whole number")))
def test_wrong_arguments(options, words, rank):
    for own in (bf.AccumAdam, bf.AccumAdamW):
        with pytest.raises(bluefog_cpp.InvalidArgument, match=f"rank {rank}, {own.__name__}: "
                                                              + words):
            own([torch.nn.Parameter(torch.ones(2))], **options)


def test_sparse_gradients_are_refused():
    table = torch.nn.Embedding(4, 2, sparse=True)
    optimizer = bf.AccumAdam(table.parameters())
    table(torch.tensor([1])).sum().backward()
    with pytest.raises(bluefog_cpp.UnsupportedError, match="expected dense gradients"):
        optimizer.step()
