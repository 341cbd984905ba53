"""The functions that wrap an optimizer, by the algorithm's name."""

from typing import Any

import torch

from bluefog_cpp.torch._optimizers import (
    CommunicationType,
    GradientOptimizer,
    NeighborOptimizer,
    PushSumOptimizer,
    communication_type_check,
    wrap,
)
from bluefog_cpp.torch._runtime import current
from bluefog_cpp.torch._wrapped.model_parts import Models


def DistributedGradientAllreduceOptimizer(optimizer: torch.optim.Optimizer, model: Models,
                                          num_steps_per_communication: int = 1) -> Any:
    """Collective. g ← (1/n) Σ_j g_j, then the local step x ← x - γ d(g): what parallel SGD does.

    num_steps_per_communication: gradients of k backward passes add up, with one step after all of
    them or one after each, of which the last counts. Cost: an `allreduce_` of the gradients in each
    round, which overlaps the backward pass.
    """
    return wrap(optimizer, GradientOptimizer, "DistributedGradientAllreduceOptimizer", model,
                "gradient_allreduce", num_steps_per_communication)


def DistributedAdaptThenCombineOptimizer(
        optimizer: torch.optim.Optimizer, model: Models,
        communication_type: CommunicationType = CommunicationType.neighbor_allreduce,
        num_steps_per_communication: int = 1, *, row_sums: str = "one") -> Any:
    """Collective. x ← W (x - γ d): the local step, then the average of its result.

    num_steps_per_communication: every k-th step averages; or one step after k backward passes does.
    row_sums: "any" where weights may sum to something else than 1, which multiplies parameters by
    the sum in each round; else a step with such weights raises InvalidArgument.
    Cost of an average: the parameters to each out-neighbour, while the next ones are stepped.
    """
    return _with_type("DistributedAdaptThenCombineOptimizer", "adapt_then_combine", optimizer,
                      model, communication_type, num_steps_per_communication, row_sums)


def DistributedAdaptWithCombineOptimizer(
        optimizer: torch.optim.Optimizer, model: Models,
        communication_type: CommunicationType = CommunicationType.neighbor_allreduce,
        num_steps_per_communication: int = 1, *, row_sums: str = "one") -> Any:
    """Collective. x ← W x - γ d(x): the average and the local step start from the same parameters.

    The average overlaps the forward and the backward pass and is formed at the start of the next
    step; `finish` forms it at the end of training. row_sums and cost: as of
    `DistributedAdaptThenCombineOptimizer`.
    """
    return _with_type("DistributedAdaptWithCombineOptimizer", "adapt_with_combine", optimizer,
                      model, communication_type, num_steps_per_communication, row_sums)


def DistributedPushSumOptimizer(optimizer: torch.optim.Optimizer, model: Models,
                                num_steps_per_communication: int = 1) -> Any:
    """Collective. Stochastic gradient push: averages exactly on graphs where ranks send to
    different numbers of others.

        x ← P (x - γ d(z));  w ← P w;  z = x / w

    with the model's parameters z, a scalar w, 1 at first, and P the shares in which ranks hand out
    what they have: equal ones, or `dst_weights`. Cost: as of adapt-then-combine. arXiv 1811.10792.
    """
    return wrap(optimizer, PushSumOptimizer, "DistributedPushSumOptimizer", model, "push_sum",
                num_steps_per_communication)


def DistributedAllreduceOptimizer(optimizer: torch.optim.Optimizer, model: Models,
                                  num_steps_per_communication: int = 1) -> Any:
    """BlueFog's older name: adapt-with-combine over all ranks."""
    return _with_type("DistributedAllreduceOptimizer", "adapt_with_combine", optimizer,
                      model, CommunicationType.allreduce, num_steps_per_communication)


def DistributedNeighborAllreduceOptimizer(optimizer: torch.optim.Optimizer, model: Models,
                                          num_steps_per_communication: int = 1, *,
                                          row_sums: str = "one") -> Any:
    """BlueFog's older name: adapt-with-combine over neighbours."""
    return _with_type("DistributedNeighborAllreduceOptimizer", "adapt_with_combine", optimizer,
                      model, CommunicationType.neighbor_allreduce, num_steps_per_communication,
                      row_sums)


def DistributedHierarchicalNeighborAllreduceOptimizer(optimizer: torch.optim.Optimizer,
                                                      model: Models,
                                                      num_steps_per_communication: int = 1, *,
                                                      row_sums: str = "one") -> Any:
    """BlueFog's older name: adapt-with-combine over machines."""
    return _with_type("DistributedHierarchicalNeighborAllreduceOptimizer", "adapt_with_combine",
                      optimizer, model, CommunicationType.hierarchical_neighbor_allreduce,
                      num_steps_per_communication, row_sums)


def _with_type(maker: str, algorithm: str, optimizer: torch.optim.Optimizer, model: Models,
               communication_type: CommunicationType, num_steps_per_communication: int,
               row_sums: str = "one") -> Any:
    current().argument(maker, "communication_type", communication_type_check,
                       communication_type)
    wrapped = wrap(optimizer, NeighborOptimizer, maker, model, algorithm,
                   num_steps_per_communication, row_sums=row_sums)
    wrapped.communication_type = communication_type
    return wrapped
