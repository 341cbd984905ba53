"""Models whose parameters change their places after the optimizer was wrapped."""

import pytest
import torch
from torch.nn.utils import parametrizations, parametrize, prune

import bluefog_cpp
import bluefog_cpp.torch as bf


class Doubled(torch.nn.Module):
    def forward(self, x):
        return 2 * x

    def right_inverse(self, x):
        return x / 2


def linear():
    return torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 1, bias=False))


def with_weight_norm():
    model = linear()
    parametrizations.weight_norm(model[0])
    return model


def doubled():
    model = linear()
    parametrize.register_parametrization(model[1], "weight", Doubled())
    return model


def pruned():
    model = linear()
    prune.random_unstructured(model[1], "weight", amount=1)
    return model


CHANGES = {
    "weight_norm_added": (linear, lambda m: parametrizations.weight_norm(m[0]), "0.weight"),
    "weight_norm_removed": (
        with_weight_norm, lambda m: parametrize.remove_parametrizations(m[0], "weight"),
        "0.parametrizations.weight.original0"),
    "parametrization_added": (
        linear, lambda m: parametrize.register_parametrization(m[1], "weight", Doubled()),
        "1.weight"),
    "parametrization_removed": (
        doubled, lambda m: parametrize.remove_parametrizations(m[1], "weight"),
        "1.parametrizations.weight.original"),
    "parametrization_removed_without_its_value": (
        doubled,
        lambda m: parametrize.remove_parametrizations(m[1], "weight", leave_parametrized=False),
        "1.parametrizations.weight.original"),
    "pruning_added": (
        linear, lambda m: prune.random_unstructured(m[1], "weight", amount=1), "1.weight"),
    "pruning_removed": (pruned, lambda m: prune.remove(m[1], "weight"), "1.weight_orig"),
    "submodule_replaced": (linear, lambda m: m.__setitem__(1, torch.nn.Linear(3, 1)), "1.weight"),
}


def step(model, optimizer):
    optimizer.zero_grad()
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()


@pytest.mark.up_to_ranks(2)
@pytest.mark.parametrize("algorithm", ("adapt_then_combine", "adapt_with_combine",
                                       "gradient_allreduce", "none"))
@pytest.mark.parametrize("change", CHANGES)
def test_a_parameter_that_changes_its_place_is_named(change, algorithm):
    make, apply, name = CHANGES[change]
    model = make()
    optimizer = bf.DecentralizedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model,
                                          algorithm)
    step(model, optimizer)
    apply(model)
    for call in (optimizer.finish, lambda: step(model, optimizer)):
        with pytest.raises(
                bluefog_cpp.StateError,
                match=f"rank {bf.rank()}, parameter '{name}': expected the module to hold"):
            call()
    optimizer = bf.DecentralizedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model,
                                          algorithm)
    step(model, optimizer)


def test_other_parts_may_come_and_go():
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh(), torch.nn.Linear(3, 3),
                                torch.nn.Linear(3, 1))
    optimizer = bf.DistributedAdaptThenCombineOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model)
    step(model, optimizer)
    del model[3]
    model[1] = torch.nn.Identity()
    model.append(torch.nn.Dropout(0.5))
    prune.random_unstructured(model[0], "weight", amount=1)
    prune.remove(model[0], "weight")
    step(model, optimizer)
