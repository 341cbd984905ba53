"""What an algorithm carries from step to step, as `state_dict` of a wrapped optimizer has it."""

from typing import Any

import torch

from bluefog_cpp import _arguments
from bluefog_cpp._extension import core
from bluefog_cpp.errors import InvalidArgument

CARRIED = "bluefog_cpp"
"""Its key in `state_dict`."""


def carried_by(name: str, algorithm: core.DistributedOptimizer) -> dict[str, Any] | None:
    """It, with the counts of steps and rounds; None where there is nothing."""
    tensors = dict(algorithm.carried())
    return {"algorithm": name, "step_count": algorithm.step_count,
            "round_count": algorithm.round_count, "tensors": tensors} if tensors else None


def check_carried(where: str, name: str, algorithm: core.DistributedOptimizer,
                  carried: Any) -> None:
    """Raises InvalidArgument for what the algorithm of that name cannot go on from."""
    if not isinstance(carried, dict) or carried.keys() != {"algorithm", "step_count",
                                                           "round_count", "tensors"}:
        raise InvalidArgument(f"{where}: expected what state_dict() of a wrapped optimizer "
                              f"gave, found {_arguments.shown(carried)}")
    if carried["algorithm"] != name:
        raise InvalidArgument(f"{where}: expected the state of {name}, found that of "
                              f"{carried['algorithm']}")
    if not all(isinstance(each, torch.Tensor) for each in carried["tensors"].values()):
        raise InvalidArgument(f"{where}: expected tensors, found others among them")
    try:
        algorithm.check_carried(carried["tensors"])
    except InvalidArgument as error:
        raise InvalidArgument(f"{where}: {error}") from None
