"""The state of this process between calls: its context, the topologies, the calls in flight."""

import atexit
import hashlib
import itertools
import os
import weakref
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import networkx as nx
import torch

from bluefog_cpp import _arguments, _exit_note
from bluefog_cpp._arguments import checked, place
from bluefog_cpp._extension import core
from bluefog_cpp._matrices import are_equivalent, default_graph, graph_of, matrix_of
from bluefog_cpp.errors import (
    ArgumentTypeError,
    Error,
    InvalidArgument,
    NotInitialized,
    StateError,
)
from bluefog_cpp.torch._calls import Calls, Place
from bluefog_cpp.torch._start import child, launch
from bluefog_cpp.torch._wrapped.former_group import FormerGroup
from bluefog_cpp.torch._wrapped.handed_state import HandedState
from bluefog_cpp.torch._wrapped.turns import Turns

T = TypeVar("T")


class Comparison:
    """The digest of the graph whose parts the ranks have compared last: the same on all ranks."""

    def __init__(self) -> None:
        self.graph: int | None = None


class Topology:
    """A static graph with this rank's part of it."""

    def __init__(self, call: str, graph: nx.DiGraph, is_weighted: bool, own: int, what: str,
                 count: int,
                 comparison: "Comparison"):
        checked(call, "topology", _arguments.digraph, graph)
        if graph.number_of_nodes() != count:
            raise ArgumentTypeError(
                f"{place(call)}: topology: expected {count} nodes, one for each "
                f"{what}, found {graph.number_of_nodes()}")
        self.graph = graph.copy()
        self.is_weighted = is_weighted
        matrix = matrix_of(call, "topology", self.graph, is_weighted)
        self.plan = matrix.plan_for(own)
        self.plan.graph = _digest(matrix)
        self.is_default = False
        """Whether nobody has asked for it."""
        self.maker: tuple[Callable[[int], nx.DiGraph], bool] | None = None
        """What makes it for another number of ranks, and whether weights count (`init`)."""
        self.comparison = comparison

    def equals(self, graph: nx.DiGraph, is_weighted: bool) -> bool:
        return self.is_weighted == is_weighted and are_equivalent(self.graph, graph)


def _places(some: list[int], among: list[int]) -> list[int]:
    """The places of `some` in the list `among`."""
    places = {each: place_ for place_, each in enumerate(among)}
    return [places[each] for each in some]


def _digest(matrix: core.MixingMatrix) -> int:
    """Equal for equal graphs, whose weights may have been computed in another order."""
    edges = sorted((i, j, f"{weight:.6g}") for i, j, weight in matrix.edges)
    return int.from_bytes(hashlib.sha256(repr(edges).encode()).digest()[:8], "little") or 1


class Runtime:
    """One per process between `init` and `shutdown`."""

    def __init__(self, context: core.Context):
        self.context = context
        self.shrinks: bool = context.shrinks_on_failure
        """Whether the loss of a rank is no error."""
        self.rank: int = context.rank
        self.size: int = context.size
        self.topology: Topology = None  # type: ignore[assignment]  # `init` sets it at once
        self.machine_topology: Topology | None = None
        self._former: FormerGroup | None = None
        """While ranks are on their way to another one."""
        self.windows: dict[str, Any] = {}
        self.retired_windows: list[Any] = []
        """Windows of optimizers that are gone here, and maybe not yet on other ranks."""
        self.window_numbers = itertools.count(1)
        self.window_optimizers = itertools.count(1)
        self.activities: dict[str, int] = {}
        """How many of the user's activities run in a row of the timeline, by the tensor's name."""
        self.has_associated_p = False
        self.skips_negotiation = False
        self.optimizers: weakref.WeakSet[Any] = weakref.WeakSet()
        """Distributed optimizers: `drain` ends what is in flight, `close` leaves."""
        self.survived_calls = 0
        """How many calls of `survive` have ended here."""
        self.is_surviving = False
        """Whether a call of `survive` is under way."""
        self.furthest_survived_call = 0
        """The most that any rank had ended when ranks were lost last."""
        self.result_of = -1
        """The call of `survive` of which this rank has a result, where it shrinks in one."""
        self.results_of: list[int] = []
        """That of each rank that was there before."""
        self.when_shrunk: list[Callable[[], None]] = []
        self.is_new = False
        """Whether this rank has nothing of what the others have, which it joins."""
        self.newcomers = 0
        """How many ranks of the last meeting were so."""
        self.turns = Turns()
        self.handed = HandedState()
        self.leaves = False
        """Whether this rank leaves the others at their next meeting."""
        self.has_asked_to_leave = False
        """Whether rank 0 has been asked to call one."""
        self.samplers: weakref.WeakSet[Any] = weakref.WeakSet()
        """Elastic samplers, which deal anew where ranks are lost."""
        self._comparison = Comparison()
        self._machine_comparison = Comparison()
        self._calls = Calls()

    def make_topology(self, call: str, graph: nx.DiGraph, is_weighted: bool) -> Topology:
        return Topology(call, graph, is_weighted, self.rank, "rank", self.size, self._comparison)

    def make_machine_topology(self, call: str, graph: nx.DiGraph, is_weighted: bool) -> Topology:
        return Topology(call, graph, is_weighted, self.context.machine_rank, "machine",
                        self.context.machine_count, self._machine_comparison)

    def or_refuse(self, make: Callable[[], T], partner: int = -1) -> T:
        """`make()`. If it raises, the call counts as refused, and peers that wait in it hear why.

        partner: the rank that the call is made with alone, or -1.
        """
        try:
            return make()
        except Exception as error:
            self.context.refuse(_arguments.utf8(str(error)), partner)
            raise

    def result_like(self, source: torch.Tensor, partner: int = -1) -> torch.Tensor:
        """Memory for the result of a call. Where there is none, the call counts as refused."""
        return self.or_refuse(lambda: core.fresh_like(source), partner)

    def argument(self, call: str, name: str, check: Callable[[Any], T], value: Any,
                 partner: int = -1) -> T:
        """`checked`, of a call that peers take part in: they hear of what is wrong."""
        return self.or_refuse(lambda: checked(call, name, check, value), partner)

    def source(self, call: str, tensor: torch.Tensor, name: str | None,
               take: Callable[[torch.Tensor], torch.Tensor],
               partner: int = -1) -> torch.Tensor:
        """The tensor as the core reads it in `call`: `take(tensor)`. If there is none, or the name
        is no name, the call counts as refused."""
        try:
            if name is not None and not (isinstance(name, str) and name.isascii()):
                checked(call, "name", _arguments.name, name)
            return take(tensor)
        except Exception as error:
            placed = self.placed(call, error)
            self.context.refuse(_arguments.utf8(str(placed)), partner)
            raise placed from None

    def placed(self, call: str, error: Exception) -> Exception:
        """The error, as one that names this rank and the call."""
        if str(error).startswith(f"rank {self.rank}, {call}"):
            return error
        kind = type(error) if isinstance(error, (Error, TypeError)) else RuntimeError
        return kind(f"rank {self.rank}, {call}: {error}")

    def optimizers_in_order(self) -> list[Any]:
        """Optimizers in the order they were made: ranks that drain or leave wait for each other,
        one after the other."""
        return sorted(self.optimizers, key=lambda optimizer: optimizer.number)

    def move_to(self, context: core.Context) -> None:
        """Goes on over the ranks of `context`, which a shrink has made; optimizers do not yet."""
        former, self.context = self.context, context
        self._former = self._former or FormerGroup(
            former.membership[1], self.topology, self.machine_topology, former.machine_of_ranks)
        ranks, before, topology = context.membership[1], self._former.ranks, self._former.topology
        has_grown = former.is_applicant or not set(ranks) <= set(before)
        self.rank, self.size = context.rank, context.size
        self._comparison, self._machine_comparison = Comparison(), Comparison()
        graph, is_weighted, is_default = default_graph(self.size), False, topology.is_default
        if has_grown and topology.maker is not None:
            graph, is_weighted = topology.maker[0](self.size), topology.maker[1]
        elif has_grown and not is_default:
            is_default = True
            if self.rank == 0:
                context.log_warning("shrink: the topology that was set does not fit ranks that are "
                                    "new: the default one takes its place; set another one in "
                                    "on_shrink")
        elif not is_default:
            left = _places(ranks, before)
            lost = sorted(set(range(len(before))) - set(left))
            matrix = matrix_of("shrink", "topology", topology.graph, topology.is_weighted)
            graph, is_weighted = graph_of(matrix.without(lost).among(left)), True
        self.topology = self.make_topology("shrink", graph, is_weighted)
        self.topology.is_default = is_default
        self.topology.maker = topology.maker
        self.machine_topology = None
        for window in (*self.windows.values(), *self.retired_windows):
            window.end()
        self.windows.clear()
        self.retired_windows.clear()
        former.close()
        _arguments.name_rank(self.rank)
        if former.device is not None:
            context.use_device(former.device)

    def settle(self) -> None:
        """All has moved. Until then another group may take this one's place: without a rank that
        is lost, or a process that was to join and cannot."""
        self._former = None

    def move_machines(self) -> None:
        """The graph of the machines that are left, in their new order, with the weights by which
        ranks get what the graph of all ranks gives them without the lost ones."""
        former, context = self._former, self.context
        topology = former.machine_topology if former else None
        if former is None or topology is None:
            return
        machines = dict(zip(context.membership[1], context.machine_of_ranks, strict=True))
        graph, is_weighted = default_graph(context.machine_count), False
        if set(machines) <= set(former.ranks):
            now_of = {before: machines[rank] for before, rank in
                      zip(former.machine_of_ranks, former.ranks, strict=True) if rank in machines}
            left = sorted(now_of)
            matrix = matrix_of("shrink", "machine topology", topology.graph, topology.is_weighted)
            lost = [place_ for place_, rank in enumerate(former.ranks) if rank not in machines]
            numbers = {place_: now_of[machine] for place_, machine in enumerate(left)}
            without = matrix.machines_without(former.machine_of_ranks, lost)
            graph = nx.relabel_nodes(graph_of(without.among(left)), numbers)
            is_weighted = True
        elif self.rank == 0:
            context.log_warning("shrink: the graph of machines that was set does not fit ranks "
                                "that are new: the default one takes its place; set another one "
                                "in on_shrink")
        self.machine_topology = self.make_machine_topology("shrink", graph, is_weighted)

    def drain_optimizers(self) -> None:
        """Ends averages that are in flight, so that parameters hold what they are due."""
        for optimizer in self.optimizers_in_order():
            optimizer.drain()

    def close(self) -> None:
        for optimizer in self.optimizers_in_order():
            optimizer.close()
        for window in (*self.windows.values(), *self.retired_windows):
            window.end()
        self.context.close()

    def abandon(self) -> None:
        """Forgets all without ending it: in the child of a fork, which has none of its threads."""
        for optimizer in list(self.optimizers):
            optimizer.abandon()
        for window in (*self.windows.values(), *self.retired_windows):
            window.core.abandon()
        self.context.abandon()

    def add(self, work: Any, finish: Callable[[Any], torch.Tensor | None],
            failed: Callable[[BaseException], None] = lambda _: None,
            writes: Iterable[Place] = ()) -> int:
        """A handle for a call that was started; `failed` takes what its wait raises. `finish` is
        kept, with all that it holds, until somebody waits."""
        return self._calls.add(work, finish, failed, writes)

    def add_without_result(self, work: Any, finish: Callable[[], None] = lambda: None,
                           writes: Iterable[Place] = ()) -> int:
        """The same for a call of a window; what `finish` holds is let go when the call is done."""
        return self._calls.add_without_result(work, finish, writes)

    def places_written_in_flight(self) -> list[Place]:
        """The callers' memory that calls which nobody has waited for yet write into."""
        return self._calls.places_written()

    def is_done(self, handle: int, asked_by: str = "poll") -> bool:
        return self._calls.is_done(self._known(handle, asked_by))

    def wait(self, handle: int, asked_by: str = "synchronize") -> torch.Tensor | Any:
        """The result, None of a call without; the handle is used up, also when it failed."""
        return self._calls.wait(self._known(handle, asked_by))

    def _known(self, handle: int, asked_by: str) -> int:
        handle = checked(asked_by, "handle", _arguments.integer, handle)
        if not self._calls.knows(handle):
            raise InvalidArgument(
                f"rank {self.rank}, {asked_by}: handle: expected that of a call in flight, "
                f"found {handle}")
        return handle


_runtime: Runtime | None = None
_has_left = False
_has_changed = False
_absence = "bluefog_cpp is not initialized: call init() first"
_is_fork_of_rank: int | None = None


def current() -> Runtime:
    """The runtime. Raises NotInitialized where there is none."""
    if _runtime is None:
        raise NotInitialized(_absence)
    return _runtime


def is_initialized() -> bool:
    return _runtime is not None


def start(handed: launch.Handed | None = None) -> Runtime:
    """The runtime; made first where there is none (collective).

    handed: the store in which the ranks meet, where the caller has one.
    """
    global _runtime, _has_left
    if _runtime is None:
        if _has_changed:
            raise StateError("init: expected the ranks of the launch, found that some were lost, "
                             "have left or joined before shutdown(): they cannot meet again")
        _has_left = False
        _runtime = Runtime(_context_of_this_launch(handed))
        _arguments.name_rank(_runtime.rank)
    return _runtime


def _context_of_this_launch(handed: launch.Handed | None) -> core.Context:
    try:
        return launch.join(handed, _is_fork_of_rank)
    except StateError as error:  # of a process that a rank has started
        advice = child.advice()
        if not advice:
            raise
        raise StateError(f"{error}; {advice}") from None


def leave_now() -> None:
    """Leaves the group of ranks, which knows of it."""
    global _has_left
    _has_left = True
    stop()
    _exit_note.depart()


def has_been_left() -> bool:
    """Whether this process has done so, and not begun anew since."""
    return _has_left


def stop() -> None:
    """Leaves the group of ranks. Idempotent."""
    global _runtime, _has_changed
    runtime, _runtime = _runtime, None
    _arguments.name_rank(None)
    if runtime is not None:
        _, _, lost, joined = runtime.context.membership
        _has_changed = _has_changed or bool(lost or joined) or runtime.leaves
        if runtime.context.is_applicant and not runtime.is_new:  # else `enter` has failed
            runtime.context.log_warning("this process was to join the others, and has not: it ends "
                                        "without a call of enter()")
        runtime.close()


def _after_fork_in_child() -> None:
    global _runtime, _absence, _is_fork_of_rank
    runtime, _runtime = _runtime, None
    _arguments.name_rank(None)
    if runtime is not None:
        runtime.abandon()
        _is_fork_of_rank = runtime.rank
        _absence = (
            f"this process was forked from rank {runtime.rank}, and only that one is a rank; "
            "communicate there")


def _stop_at_exit() -> None:
    if _runtime is not None:
        _exit_note.leave()
    stop()
    core.run_exit_hooks()  # stores of torch end with the interpreter


atexit.register(_stop_at_exit)
os.register_at_fork(after_in_child=_after_fork_in_child)
