"""What the optimizer that is wrapped is like."""

import inspect

import torch


def asks_for_closure(optimizer: type[torch.optim.Optimizer]) -> bool:
    """Whether `step` of this class has a closure without a default."""
    closure = inspect.signature(optimizer.step).parameters.get("closure")
    return closure is not None and closure.default is closure.empty


def learning_rate_of(optimizer: torch.optim.Optimizer) -> float:
    """That of the first group; 1 for optimizers that have none."""
    return float(optimizer.param_groups[0].get("lr", 1.0))
