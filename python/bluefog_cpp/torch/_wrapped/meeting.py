"""Checks of ranks that meet, and words about them."""

import itertools
from collections.abc import Iterable
from typing import Any

import networkx as nx

from bluefog_cpp._extension import core
from bluefog_cpp._matrices import default_graph
from bluefog_cpp.errors import MismatchError
from bluefog_cpp.torch._parameters import described_lines
from bluefog_cpp.torch._runtime import Runtime
from bluefog_cpp.torch._wrapped.model_parts import buffers_of


def statement_of(context: core.Context, optimizers: Iterable[Any],
                 samplers: Iterable[Any]) -> list[str]:
    """Lines that processes which join have in common with the others; none where nobody joins."""
    if not _has_newcomers(context):
        return []
    lines = []
    for number, optimizer in enumerate(optimizers):
        of = [*described_lines(optimizer.wrapped),
              *(f"buffer {name}, {str(buffer.dtype).removeprefix('torch.')} {list(buffer.shape)}"
                for name, buffer in buffers_of(optimizer.models))]
        lines += [f"optimizer {number}: {line}" for line in of]
    return lines + [f"sampler {number}: {sampler.described()}"
                    for number, sampler in enumerate(samplers)]


def _has_newcomers(context: core.Context) -> bool:
    epoch, _, _, joined = context.membership
    return any(since == epoch for _, since in joined)


def graph_for_newcomers(runtime: Runtime) -> tuple[bool, list[tuple[int, int, float]]] | None:
    """Rank 0's, which processes that join may not have set. None: the default one."""
    own = runtime.topology
    if runtime.rank > 0 or own.is_default or not _has_newcomers(runtime.context):
        return None
    return own.is_weighted, [(int(i), int(j), float(weight))
                             for i, j, weight in own.graph.edges.data("weight", 1.0)]


def take_graph(runtime: Runtime, given: tuple[bool, list[tuple[int, int, float]]] | None) -> None:
    """Rank 0's, on all ranks."""
    if runtime.rank == 0 or (given is None and runtime.topology.is_default):
        return
    graph, maker = default_graph(runtime.size), runtime.topology.maker
    if given is not None:
        graph = nx.DiGraph()
        graph.add_nodes_from(range(runtime.size))
        graph.add_weighted_edges_from(given[1])
    runtime.topology = runtime.make_topology("enter", graph, given is not None and given[0])
    runtime.topology.is_default, runtime.topology.maker = given is None, maker


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
