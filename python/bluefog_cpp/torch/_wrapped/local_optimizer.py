"""Properties of the optimizer that is wrapped."""

import inspect
import weakref
from collections.abc import Callable
from typing import TypeAlias

import torch

from bluefog_cpp.torch._accum_adam import AccumAdam

MomentsOf: TypeAlias = Callable[[torch.Tensor], tuple[torch.Tensor | None, torch.Tensor | None]]


def asks_for_closure(optimizer: type[torch.optim.Optimizer]) -> bool:
    """Whether `step` of this class has a closure without a default."""
    closure = inspect.signature(optimizer.step).parameters.get("closure")
    return closure is not None and closure.default is closure.empty


def learning_rate_of(optimizer: torch.optim.Optimizer) -> float:
    """That of the first group; 1 for optimizers that have none."""
    return float(optimizer.param_groups[0].get("lr", 1.0))


def moments_of(optimizer: torch.optim.Optimizer) -> MomentsOf | None:
    """Finds the moments of a parameter, `exp_avg` and `exp_avg_sq`, where they lie, None before its
    first gradient; None for optimizers whose state is not known to have them."""
    if not isinstance(optimizer, (torch.optim.Adam, torch.optim.AdamW, torch.optim.NAdam,
                                  torch.optim.RAdam, AccumAdam)):
        return None
    if any(group.get("amsgrad") for group in optimizer.param_groups):
        return None  # the largest second moments would stay the ranks' own
    this = weakref.ref(optimizer)

    def moments(parameter: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        found = this()
        state = {} if found is None else found.state.get(parameter, {})
        return state.get("exp_avg"), state.get("exp_avg_sq")

    return moments
