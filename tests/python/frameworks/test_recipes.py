"""The programs of examples/recipes, with the real packages: each step is the one of its own
gradients, and then the average with the neighbours."""

import contextlib
import dataclasses
import pathlib
import runpy

import pytest
import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

import bluefog_cpp.torch as bf

RECIPES = pathlib.Path(__file__).resolve().parents[3] / "examples" / "recipes"


@dataclasses.dataclass
class Step:
    """A step of the program's one optimizer: plain SGD."""

    rate: float
    before: torch.Tensor
    gradients: torch.Tensor = None
    after: torch.Tensor = None


@contextlib.contextmanager
def recorded_steps():
    """Fills the list that it returns. Some steps compute their gradients by a closure."""
    steps = []

    def flat(optimizer, value):
        return torch.cat([value(each).detach().flatten() for group in optimizer.param_groups
                          for each in group["params"]]).clone()

    def begin(optimizer, *_):
        steps.append(Step(optimizer.param_groups[0]["lr"], flat(optimizer, lambda each: each)))

    def end(optimizer, *_):
        steps[-1].gradients = flat(optimizer, lambda each: each.grad)
        steps[-1].after = flat(optimizer, lambda each: each)

    hooks = [register_optimizer_step_pre_hook(begin), register_optimizer_step_post_hook(end)]
    try:
        yield steps
    finally:
        for hook in hooks:
            hook.remove()


def of_all_ranks(values):
    return bf.allgather(values.double().unsqueeze(0))


def distance(values):
    """How far ranks are from their mean."""
    return (values - values.mean(0)).norm().item()


@pytest.mark.parametrize("recipe, package", (
    ("ddp", "torch"), ("accelerate_loop", "accelerate"), ("lightning_module", "pytorch_lightning"),
    ("transformers_trainer", "transformers")))
def test_recipe(recipe, package):
    pytest.importorskip(package, exc_type=ImportError)
    program = runpy.run_path(str(RECIPES / f"{recipe}.py"))
    with recorded_steps() as steps:
        program["main"]()
    assert len(steps) >= 4
    assert bf.size() == 2
    averaging = torch.full((2, 2), 0.5, dtype=torch.float64)  # the exponential graph's
    for step in steps:
        gradients = of_all_ranks(step.gradients)
        local = of_all_ranks(step.before) - step.rate * gradients
        after = of_all_ranks(step.after)
        assert distance(gradients) > 0 and not gradients.isnan().any()
        assert after.allclose(averaging @ local, atol=1e-6)  # sums of float32
        assert distance(after) < 0.01 * distance(local)
