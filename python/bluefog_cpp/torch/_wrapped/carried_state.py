"""State that algorithms carry from step to step, as `state_dict` of wrapped optimizers has it."""

from typing import Any

import torch

from bluefog_cpp import _arguments
from bluefog_cpp._extension import core
from bluefog_cpp.errors import InvalidArgument

CARRIED = "bluefog_cpp"
"""Its key in `state_dict`."""
COUNTS = ("step_count", "round_count")
PLACE = ("rank", "size")
"""The rank that it is of, where all ranks' parts belong together."""


def carried_by(name: str, algorithm: core.DistributedOptimizer | None, steps_of_sum: int,
               place: tuple[int, int]) -> dict[str, Any] | None:
    """Its tensors, which may be none, with the counts of steps and rounds, which graphs and every
    k-th step go by; None of an optimizer that has ended.

    steps_of_sum: steps in which gradients add up before a round. Sums are not saved, so that a
    round of which some steps are made begins anew.
    place: this rank and the number of ranks.
    """
    if algorithm is None:
        return None
    steps = algorithm.step_count
    found = {"algorithm": name, "step_count": steps - steps % steps_of_sum,
             "round_count": algorithm.round_count, "tensors": dict(algorithm.carried())}
    if core.algorithm_named(name).conserved:
        found.update(zip(PLACE, place))
    return found


def check_carried(where: str, name: str, algorithm: core.DistributedOptimizer,
                  carried: Any, place: tuple[int, int]) -> None:
    """Raises InvalidArgument for what the algorithm of that name cannot go on from."""
    if (not isinstance(carried, dict)
            or carried.keys() - set(PLACE) != {"algorithm", *COUNTS, "tensors"}
            or not isinstance(carried["tensors"], dict)):
        raise InvalidArgument(f"{where}: expected what state_dict() of a wrapped optimizer "
                              f"gave, found {_arguments.shown(carried)}")
    for count in COUNTS:
        try:
            _arguments.at_least(0)(carried[count])
        except InvalidArgument as error:
            raise type(error)(f"{where}: {count}: {error}") from None
    if is_of_another(name, carried):
        return
    if carried["algorithm"] != name:
        raise InvalidArgument(f"{where}: expected the state of {name}, found that of "
                              f"{carried['algorithm']}")
    if not all(isinstance(each, torch.Tensor) for each in carried["tensors"].values()):
        raise InvalidArgument(f"{where}: expected tensors, found others among them")
    conserved = core.algorithm_named(name).conserved
    of = tuple(carried.get(each, own) for each, own in zip(PLACE, place))
    if conserved and of != place:
        raise InvalidArgument(f"{where}: expected what rank {place[0]} of {place[1]} has saved, "
                              f"since what {name} carries {conserved}, found that of rank {of[0]} "
                              f"of {of[1]}; with a state without the key '{CARRIED}' on all ranks "
                              "it begins anew by restart()")
    try:
        algorithm.check_carried(carried["tensors"])
    except InvalidArgument as error:
        raise InvalidArgument(f"{where}: {error}") from None


def of_use(carried: Any, has_ended: bool) -> Any:
    """It, or None where an optimizer that has ended loads counts alone: who wraps it again begins
    with others."""
    is_counts = isinstance(carried, dict) and not carried.get("tensors")
    return None if has_ended and is_counts else carried


def is_of_another(name: str, carried: dict[str, Any]) -> bool:
    """Whether another algorithm has made it that carries nothing: a plain optimizer's state then,
    and the counts of the other one are not this one's."""
    return carried["algorithm"] != name and not carried["tensors"]


def resume(name: str, algorithm: core.DistributedOptimizer, carried: dict[str, Any]) -> None:
    """Goes on from what `check_carried` has accepted. Averages in flight stay where nothing
    changes."""
    counts = tuple(carried[count] for count in COUNTS)
    if is_of_another(name, carried) or (not carried["tensors"]
                                        and counts == counts_of(algorithm)):
        return
    algorithm.resume(carried["tensors"], *counts)


def counts_of(algorithm: core.DistributedOptimizer) -> tuple[int, int]:
    """The steps and rounds so far."""
    return algorithm.step_count, algorithm.round_count


def without_tensors(state: Any) -> Any:
    """The `state_dict` for other ranks: tensors that an algorithm carries are each rank's own."""
    if not isinstance(state, dict) or CARRIED not in state:
        return state
    return {**state, CARRIED: {count: state[CARRIED][count] for count in COUNTS}}


def take_over_counts(call: str, context: core.Context, algorithm: core.DistributedOptimizer | None,
                     found: dict[str, Any]) -> None:
    """Collective. Goes on with the counts of another rank, from what `without_tensors` had of it.
    If some had others, as when that rank alone has loaded a checkpoint, tensors that they carry do
    not belong together, and begin anew on all."""
    counts = tuple(found[count] for count in COUNTS)
    is_apart = algorithm is not None and counts != counts_of(algorithm)
    apart = core.gather_bytes(context, call, b"1" if is_apart else b"0")
    if algorithm is None or b"1" not in apart:
        return
    carried = sorted(dict(algorithm.carried()))
    if carried:
        algorithm.restart()
        if context.rank == 0:
            context.log_warning(f"{call}: ranks had other counts of steps or rounds, and so what "
                                f"the algorithm carries ({', '.join(carried[:4])}) begins anew: to "
                                "go on from it have all ranks load what they have saved")
    algorithm.resume(dict(algorithm.carried()), *counts)
