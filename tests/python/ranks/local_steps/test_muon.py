"""torch.optim.Muon as the local step of algorithms."""

import pytest
import torch

import bluefog_cpp.torch as bf
from bluefog_cpp import topology_util
from simulation import flat, mixing

pytestmark = pytest.mark.skipif(not hasattr(torch.optim, "Muon"),
                                reason=f"torch {torch.__version__} has no Muon")
RATE = 0.02


def model_of(seed):
    """Matrices alone, which Muon takes."""
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(4, 6, bias=False), torch.nn.Tanh(),
                               torch.nn.Linear(6, 2, bias=False)).double()


def loss_of(model, rank, step):
    generator = torch.Generator().manual_seed(100 * rank + step)
    data = torch.randn(8, 4, generator=generator, dtype=torch.float64)
    target = torch.randn(8, 2, generator=generator, dtype=torch.float64)
    return torch.nn.functional.mse_loss(model(data), target)


def muon_of(model):
    return torch.optim.Muon(model.parameters(), lr=RATE, weight_decay=0.1)


class AllRanks:
    """All ranks in this process; `estimates` stand in place of gradients."""

    def __init__(self, size):
        self.models = [model_of(0) for _ in range(size)]
        self.optimizers = [muon_of(model) for model in self.models]

    def gradients(self, step):
        for rank, model in enumerate(self.models):
            model.zero_grad()
            loss_of(model, rank, step).backward()
        return torch.stack([torch.cat([p.grad.flatten() for p in model.parameters()])
                            for model in self.models])

    def step_by(self, estimates):
        for model, optimizer, estimate in zip(self.models, self.optimizers, estimates):
            parameters = list(model.parameters())
            pieces = estimate.split([p.numel() for p in parameters])
            for parameter, piece in zip(parameters, pieces):
                parameter.grad = piece.view_as(parameter).clone()
            optimizer.step()

    def average(self, matrix):
        values = torch.as_tensor(matrix) @ torch.stack([flat(model) for model in self.models])
        for model, mixed in zip(self.models, values):
            torch.nn.utils.vector_to_parameters(mixed, model.parameters())


def wrapped(size, algorithm):
    model = model_of(0)
    graph = topology_util.ExponentialGraph(size)
    return model, mixing(graph), bf.DecentralizedOptimizer(
        muon_of(model), model, algorithm, schedule=graph, bucket_bytes=64)


def make_step(model, optimizer, rank, step):
    optimizer.zero_grad()
    loss_of(model, rank, step).backward()
    optimizer.step()


def close(found, expected):
    """Products of bfloat16 may round the other way in memory that lies otherwise, which moves a
    step by some hundredths of its length; a step by other gradients moves it by much more."""
    torch.testing.assert_close(found, expected, rtol=0, atol=0.1 * RATE)


def test_adapt_then_combine(rank, size):
    together = AllRanks(size)
    model, matrix, optimizer = wrapped(size, "atc")
    for step in range(5):
        together.step_by(together.gradients(step))
        together.average(matrix)
        make_step(model, optimizer, rank, step)
        close(flat(model), flat(together.models[rank]))


def test_gradients_are_tracked_before_they_are_made_orthogonal(rank, size):
    together = AllRanks(size)
    model, matrix, optimizer = wrapped(size, "gradient_tracking")
    tracked = before = None
    for step in range(5):
        gradients = together.gradients(step)
        tracked = gradients if tracked is None else (
            torch.as_tensor(matrix) @ tracked + gradients - before)
        torch.testing.assert_close(tracked.mean(0), gradients.mean(0), rtol=0, atol=1e-12)
        before = gradients
        together.step_by(tracked)
        together.average(matrix)
        make_step(model, optimizer, rank, step)
        close(flat(model), flat(together.models[rank]))


def test_gradient_all_reduce_makes_one_orthogonal_step_of_the_mean(rank, size):
    together = AllRanks(size)
    model, _, optimizer = wrapped(size, "gradient_allreduce")
    for step in range(5):
        mean = together.gradients(step).mean(0)
        together.step_by([mean] * size)
        make_step(model, optimizer, rank, step)
        close(flat(model), flat(together.models[rank]))


@pytest.mark.parametrize("algorithm", (
    "adapt_with_combine", "exact_diffusion", "push_sum", "gossip_pga", "choco", "diloco",
    "gossip_diloco", "accelerated_gossip"))
def test_algorithms_that_take_any_step(algorithm, rank, size):
    """Full averages and equal data: the loss falls, and ranks stay equal."""
    model = model_of(0)
    optimizer = bf.DecentralizedOptimizer(muon_of(model), model, algorithm,
                                          schedule=topology_util.FullyConnectedGraph(size))
    first = loss_of(model, 0, 0).item()
    for _ in range(8):
        make_step(model, optimizer, 0, 0)
    optimizer.finish()
    assert loss_of(model, 0, 0).item() < first
    values = bf.allgather(flat(model)[None])
    close(values, values[:1].expand_as(values))


def test_state_goes_on(rank, size):
    model, _, optimizer = wrapped(size, "atc")
    for step in range(3):
        make_step(model, optimizer, rank, step)
    kept, values = optimizer.state_dict(), flat(model)
    kept = {**kept, "state": {key: {name: each.clone() for name, each in of.items()}
                              for key, of in kept["state"].items()}}
    for step in range(3, 6):
        make_step(model, optimizer, rank, step)
    other, _, resumed = wrapped(size, "atc")
    torch.nn.utils.vector_to_parameters(values, other.parameters())
    resumed.load_state_dict(kept)
    for step in range(3, 6):
        make_step(other, resumed, rank, step)
    close(flat(other), flat(model))
