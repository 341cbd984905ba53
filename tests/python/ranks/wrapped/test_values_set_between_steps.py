"""Values that are set between two steps of adapt-with-combine, while an average is in flight."""

import pytest
import torch

import bluefog_cpp
import bluefog_cpp.torch as bf
from conftest import needs

VALUE = 50.0


def load(model):
    model.load_state_dict({name: torch.full_like(value, VALUE)
                           for name, value in model.state_dict().items()})


def load_and_assign_data(model):
    for parameter in model.parameters():
        parameter.data = torch.full_like(parameter, VALUE)


def copy(model):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.full_like(parameter, VALUE))


def write_through_data(model):
    for parameter in model.parameters():
        parameter.data.fill_(VALUE)


def write_through_numpy(model):
    for parameter in model.parameters():
        parameter.detach().numpy()[...] = VALUE


def write_into_the_state_dict(model):
    for value in model.state_dict().values():
        value.fill_(VALUE)


def compute(model):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0).add_(VALUE)


def from_a_vector(model):
    size = sum(parameter.numel() for parameter in model.parameters())
    torch.nn.utils.vector_to_parameters(torch.full((size,), VALUE), model.parameters())


WAYS = (load, load_and_assign_data, copy, write_through_data, write_through_numpy,
        write_into_the_state_dict, compute, from_a_vector)


def set_up(rank, algorithm="adapt_with_combine", lr=0.0, base=torch.optim.SGD):
    """Two buckets of a parameter each, which hold the rank."""
    model = torch.nn.Linear(30, 1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(rank)
    optimizer = bf.DecentralizedOptimizer(base(model.parameters(), lr=lr), model, algorithm,
                                          bucket_bytes=64)
    return model, optimizer


def step(model, optimizer):
    optimizer.zero_grad()
    model(torch.ones(1, 30)).sum().backward()
    optimizer.step()


def values(model):
    return {value for parameter in model.parameters()
            for value in parameter.detach().flatten().tolist()}


@pytest.mark.up_to_ranks(2)
@pytest.mark.parametrize("who", ("all", "rank 0"))
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_they_go_on(way, who, rank):
    needs(2)
    is_set = who == "all" or rank == 0
    for end in ("step", "finish"):
        model, optimizer = set_up(rank)
        step(model, optimizer)
        if is_set:
            way(model)
        step(model, optimizer) if end == "step" else optimizer.finish()
        assert values(model) == {VALUE if is_set else 0.5}
        step(model, optimizer)  # the average of what was published after
        step(model, optimizer)
        expected = VALUE if who == "all" else (VALUE + 0.5) / 2
        assert values(model) == {expected}


@pytest.mark.up_to_ranks(2)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_model_loaded_by_the_root_is_everybodys(way, rank):
    needs(2)
    model, optimizer = set_up(rank)
    step(model, optimizer)
    if rank == 0:
        way(model)
    bf.broadcast_parameters(model.state_dict(), 0)
    step(model, optimizer)
    optimizer.finish()
    assert values(model) == {VALUE}


@pytest.mark.up_to_ranks(2)
def test_what_is_not_set_is_averaged(rank, size):
    model, optimizer = set_up(rank)
    step(model, optimizer)
    with torch.no_grad():
        model.bias.fill_(VALUE)
        model.weight.add_(1).sub_(1)  # as it was
    optimizer.finish()
    assert model.bias.item() == VALUE
    torch.testing.assert_close(model.weight, torch.full((1, 30), (size - 1) / 2))


@pytest.mark.up_to_ranks(2)
@pytest.mark.parametrize("end", ("step", "finish"))
def test_set_after_every_step_they_are_refused(end, rank):
    """Or the ranks would drift apart."""
    needs(2)
    model, optimizer = set_up(rank)
    with pytest.raises(bluefog_cpp.StateError,
                       match=f"rank {rank}, adapt_with_combine, parameter 'bias': expected values "
                       "that are set between steps now and then"):
        for round_ in range(4):
            step(model, optimizer)
            model.bias.data.fill_(round_)
            if end == "finish":
                optimizer.finish()
    for round_ in range(4):
        optimizer.finish()
        model.bias.data.fill_(round_)
        step(model, optimizer)


class Custom(torch.optim.Optimizer):
    """Steps all parameters at once, and gives them new memory."""

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.data = parameter.data - group["lr"] * parameter.grad


class InPlace(Custom):
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.data.sub_(group["lr"] * parameter.grad)


@pytest.mark.up_to_ranks(2)
@pytest.mark.parametrize("algorithm", ("adapt_with_combine", "adapt_then_combine"))
@pytest.mark.parametrize("base", (Custom, InPlace))
def test_optimizers_that_step_all_parameters_at_once(base, algorithm, rank, size):
    model, optimizer = set_up(rank, algorithm, 1.0, base)
    x, is_pending = torch.arange(float(size)), False
    for _ in range(3):
        step(model, optimizer)
        if algorithm == "adapt_with_combine":
            x = (x.mean().expand(size) if is_pending else x) - 1
            is_pending = True
        else:
            x = (x - 1).mean().expand(size)
        torch.testing.assert_close(model.weight, torch.full((1, 30), x[rank].item()))
        torch.testing.assert_close(model.bias, torch.full((1,), x[rank].item()))
