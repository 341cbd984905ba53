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


def statement_of(optimizers: Iterable[Any], samplers: Iterable[Any]) -> list[str]:
    """Lines that processes which join have in common with the others."""
    lines = []
    for number, optimizer in enumerate(optimizers):
        of = [*described_lines(optimizer.wrapped),
              *(f"buffer {name}, {str(buffer.dtype).removeprefix('torch.')} {list(buffer.shape)}"
                for name, buffer in buffers_of(optimizer.models))]
        lines += [f"optimizer {number}: {line}" for line in of]
    return lines + [f"sampler {number}: {sampler.described()}"
                    for number, sampler in enumerate(samplers)]


_Graph = tuple[bool, list[tuple[int, int, float]]]
"""Whether weights count, and the edges."""


def graphs_of(runtime: Runtime) -> list[_Graph | None]:
    """Those of the first rank that is not new, of ranks and of machines, are everybody's: newcomers
    may have set none, and where a meeting was interrupted when some ranks had ended it, these come
    from another group than the rest. None: the default one of ranks, and none of machines."""
    ranks = None if runtime.topology.is_default else runtime.topology
    return [(each.is_weighted, [(int(i), int(j), float(weight))
                                for i, j, weight in each.graph.edges.data("weight", 1.0)])
            if each is not None and not runtime.is_new else None
            for each in (ranks, runtime.machine_topology)]


def take_graphs(runtime: Runtime, giver: int, given: list[_Graph | None]) -> None:
    """Those that rank `giver` has, on all others."""
    if runtime.rank == giver:
        return
    ranks, machines = given
    maker = runtime.topology.maker
    runtime.topology = runtime.make_topology(
        "shrink", default_graph(runtime.size) if ranks is None else _graph(runtime.size, ranks),
        ranks is not None and ranks[0])
    runtime.topology.is_default, runtime.topology.maker = ranks is None, maker
    runtime.machine_topology = None if machines is None else runtime.make_machine_topology(
        "shrink", _graph(runtime.context.machine_count, machines), machines[0])


def _graph(nodes: int, given: _Graph) -> nx.DiGraph:
    graph = nx.DiGraph()
    graph.add_nodes_from(range(nodes))
    graph.add_weighted_edges_from(given[1])
    return graph


def check_alike(runtime: Runtime, place: int, state: dict[str, Any], common: dict[str, set[int]],
                handed: list[str], made: tuple[list[str], list[str]]) -> None:
    """Raises MismatchError where a process that joins has not made what the others have.

    made: its `statement_of`, and that of one of these."""
    for what, expected in common.items():
        if len(state[what]) != len(expected):
            raise MismatchError(
                f"rank {runtime.rank}, enter: expected as many {what} on a process that joins as "
                f"the others have, {len(expected)}, found {len(state[what])} on rank {place}")
    for own, expected_line in itertools.zip_longest(*made, fillvalue="nothing"):
        if own != expected_line:
            raise MismatchError(
                f"rank {runtime.rank}, enter: expected a process that joins to have what the "
                f"others have, {expected_line}, found {own} on rank {place}")
    if state["handed"] != handed:
        raise MismatchError(
            f"rank {runtime.rank}, enter: expected hand_to_newcomers() to name the same classes on "
            f"a process that joins as on the others, {', '.join(handed) or 'none'}, found "
            f"{', '.join(state['handed']) or 'none'} on rank {place}")


def described_group(context: core.Context, is_new: list[bool]) -> str:
    """"3 ranks go on without rank 1 (…)"."""
    epoch, ranks, lost, _ = context.membership
    newcomers = sum(is_new)
    text = f"{len(ranks)} rank{'s go' if len(ranks) > 1 else ' goes'} on"
    without = ", ".join(f"rank {each[0]} ({each[2]})" for each in lost if each[1] == epoch)
    if without or not newcomers:
        text += f" without {without or 'any other one'}"
    if newcomers:
        numbers = ", ".join(str(rank) for rank, new in zip(ranks, is_new, strict=True) if new)
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
