"""Checks of ranks that meet, and words about them."""

import itertools
from collections.abc import Iterable
from typing import Any

from bluefog_cpp._extension import core
from bluefog_cpp.errors import MismatchError
from bluefog_cpp.torch._parameters import described_lines
from bluefog_cpp.torch._runtime import Runtime
from bluefog_cpp.torch._wrapped.model_parts import buffers_of


def statement_of(context: core.Context, optimizers: Iterable[Any],
                 samplers: Iterable[Any]) -> list[str]:
    """Lines that processes which join have in common with the others; none where nobody joins."""
    epoch, _, _, joined = context.membership
    if all(since != epoch for _, since in joined):
        return []
    lines = []
    for number, optimizer in enumerate(optimizers):
        of = [*described_lines(optimizer.wrapped),
              *(f"buffer {name}, {str(buffer.dtype).removeprefix('torch.')} {list(buffer.shape)}"
                for name, buffer in buffers_of(optimizer.models))]
        lines += [f"optimizer {number}: {line}" for line in of]
    return lines + [f"sampler {number}: {sampler.described()}"
                    for number, sampler in enumerate(samplers)]


def check_alike(runtime: Runtime, place: int, state: dict[str, Any], common: dict[str, set[int]],
                handed: list[str], made: list[str]) -> None:
    """Raises MismatchError where a process that joins has not made what the others have."""
    for what, expected in common.items():
        if len(state[what]) != len(expected):
            raise MismatchError(
                f"rank {runtime.rank}, enter: expected as many {what} on a process that joins as "
                f"the others have, {len(expected)}, found {len(state[what])} on rank {place}")
    for own, expected_line in itertools.zip_longest(state["made"], made, fillvalue="nothing"):
        if own != expected_line:
            raise MismatchError(
                f"rank {runtime.rank}, enter: expected a process that joins to have what the "
                f"others have, {expected_line}, found {own} on rank {place}")
    if state["handed"] != handed:
        raise MismatchError(
            f"rank {runtime.rank}, enter: expected hand_to_newcomers() to name the same classes on "
            f"a process that joins as on the others, {', '.join(handed) or 'none'}, found "
            f"{', '.join(state['handed']) or 'none'} on rank {place}")


def described_group(context: core.Context) -> str:
    """"3 ranks go on without rank 1 (…)"."""
    epoch, ranks, lost, joined = context.membership
    newcomers = sum(since == epoch for _, since in joined)
    text = f"{len(ranks)} rank{'s go' if len(ranks) > 1 else ' goes'} on"
    without = ", ".join(f"rank {each[0]} ({each[2]})" for each in lost if each[1] == epoch)
    if without or not newcomers:
        text += f" without {without or 'any other one'}"
    if newcomers:
        numbers = ", ".join(map(str, ranks[-newcomers:]))
        text += f", {newcomers} of them new: rank{'s' if newcomers > 1 else ''} {numbers}"
    return text


def clock_of(runtime: Runtime, optimizer: Any) -> Any:
    """The optimizer whose steps say when ranks meet, at the end of a turn: of those that wait for
    nobody ranks make as many as they like, and would meet in different turns."""
    if _keeps_step(optimizer):
        return optimizer
    return next((each for each in reversed(runtime.optimizers_in_order())
                 if not each.has_ended and _keeps_step(each)), optimizer)


def _keeps_step(optimizer: Any) -> bool:
    return optimizer.windows_of is None and not optimizer.averages_over_nobody


def paces_another(runtime: Runtime, optimizer: Any) -> bool:
    """Whether its steps say when ranks meet at the end of those of another one."""
    last = runtime.turns.last()
    return last is not None and any(
        each.number == last and each is not optimizer and clock_of(runtime, each) is optimizer
        for each in runtime.optimizers)
