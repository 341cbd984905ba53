"""Schedules that a program brings along, as classes."""

from collections.abc import Sequence
from typing import Any, ClassVar

import networkx as nx

from bluefog_cpp import _arguments
from bluefog_cpp._extension import core
from bluefog_cpp._matrices import matrix_of
from bluefog_cpp.errors import Error, InvalidArgument, UnsupportedError
from bluefog_cpp.torch._own.classes import check_class, is_same

_MOST_SHOWN_STEPS = 2**62
_classes: dict[str, type["Schedule"]] = {}
_given_classes: dict[str, type["Schedule"]] = {}
"""Classes that were given as such, by a text that is no name."""


class Schedule:
    """The mixing matrix of each round, for a number of ranks: W(0), W(1), …, by turns.

        @bf.register_schedule
        class Pairs(bf.Schedule):
            name = "pairs"
            period_steps = 2

            def graph(self, step):
                ...

    Subclasses say in `graph` what ranks do in a step. An object, the class, or the name of a class
    that is registered is what `schedule` of `DecentralizedOptimizer` takes. Without lost ranks it
    goes on as graphs do; where processes join, it is made anew by its class or name.
    """

    name: ClassVar[str] = ""
    """Lower-case letters, digits and hyphens."""
    period_steps: int = 1
    """Steps after which it repeats: W(t + period) = W(t)."""

    def __init__(self, size: int):
        self.size = _arguments.checked(type(self).__name__, "size",
                                       _arguments.at_least(1, 2**31 - 1), size)

    def graph(self, step: int) -> nx.DiGraph:
        """The graph of `step`, from 0 to below the period, over ranks 0 … size - 1: an edge i → j
        of weight w has j give i's value that weight; loops are self weights.

        The same on every rank: ranks compare a period of up to 1,024 steps, or 64 at a time. It is
        asked for any step at any time, and may be kept.
        """
        raise NotImplementedError(f"{type(self).__name__}: expected a method 'graph'")

    def _matrix(self, step: int) -> core.MixingMatrix:
        where = f"{type(self).__name__}, step {step}"
        graph = self.graph(step)
        if isinstance(graph, nx.Graph) and len(graph) != self.size:
            raise InvalidArgument(f"{_arguments.place(where)}: graph: expected one of {self.size} "
                                  f"ranks, found one of {len(graph)}")
        return matrix_of(where, "graph", graph)

    def _of_core(self) -> core.Schedule:
        where = type(self).__name__
        if "size" not in self.__dict__:
            raise InvalidArgument(f"{_arguments.place(where)}: expected a call of "
                                  "super().__init__(size), found none")
        period = _arguments.checked(where, "period_steps",
                                    _arguments.at_least(1, _MOST_SHOWN_STEPS), self.period_steps)
        try:
            self._matrix(0)  # errors in all steps are said at once
        except Error:
            raise
        except Exception as error:
            raise InvalidArgument(f"{_arguments.place(where)}, step 0: graph: "
                                  f"{type(error).__name__}: {error}") from error
        return core.python_schedule(self, self.size, period)


def register_schedule(schedule: type[Schedule]) -> type[Schedule]:
    """Makes a class known by its `name`, as a decorator: `schedule="pairs"`, also of `bfbench
    converge --topologies`. On all ranks. Returns the class. A class of the same module and name
    takes the former one's place.

    Raises ArgumentTypeError for anything but a subclass of `Schedule` with a method `graph`,
    InvalidArgument for a name that is none or taken, also by a family of `bftopo list`.
    """
    call = "register_schedule"
    check_class(call, "schedule", schedule, Schedule, "graph")
    name = _arguments.checked(call, "name", _arguments.dashed_name, schedule.name)
    former = _classes.get(name)
    if name in core.family_names() or (former is not None and not is_same(former, schedule)):
        raise InvalidArgument(f"{_arguments.place(call)}: name: expected one that no schedule has, "
                              f"found '{name}'")
    _classes[name] = schedule
    return schedule


def registered_schedules() -> list[str]:
    """The names of `register_schedule`."""
    return list(_classes)


def name_to_make(given: Any) -> str | None:
    """The text that `schedule_named` takes for it, where it can be made for another number of
    ranks."""
    if isinstance(given, type):
        key = f"<class {given.__module__}.{given.__qualname__}>"
        _given_classes[key] = given
        return key
    return given if isinstance(given, str) else None


def schedule_named(algorithm: str, name: str, size: int, local_size: int) -> core.Schedule:
    """The meaning of `name` as a schedule of an algorithm: one of its own, a family of `bftopo
    list`, or a registered class."""
    made = _classes.get(name) or _given_classes.get(name)
    if made is not None:
        return made(size)._of_core()
    try:
        return core.algorithm_named(algorithm).schedule(name, size, local_size)
    except (InvalidArgument, UnsupportedError) as error:
        own = f", and of this program {', '.join(_classes)}" if _classes else ""
        raise type(error)(f"{error}{own}") from None


def schedule_from(call: str, argument: str, given: Any, algorithm: str, size: int,
                  local_size: int) -> core.Schedule:
    """The meaning of an argument of a call: a name, a graph, several by turns, or a schedule."""
    place = f"{_arguments.place(call)}: {argument}"
    if isinstance(given, str):
        try:
            return schedule_named(algorithm, given, size, local_size)
        except (InvalidArgument, UnsupportedError) as error:
            raise type(error)(f"{place}: {error}") from None
    if isinstance(given, type) and issubclass(given, Schedule):
        given = given(size)
    if isinstance(given, Schedule):
        return given._of_core()
    if isinstance(given, nx.Graph):
        return core.static_schedule(matrix_of(call, argument, given))
    # Generators of schedules have no end.
    graphs: Sequence[Any] = list(given) if isinstance(given, (list, tuple)) else [given]
    wrong = [graph for graph in graphs if not isinstance(graph, nx.Graph)]
    if wrong or not graphs:
        found = _arguments.described(wrong[0]) if wrong else "none"
        raise InvalidArgument(f"{place}: expected a name of `bftopo list`, a networkx.DiGraph or "
                              f"several, or a bf.Schedule, found {found}")
    return core.cycle([matrix_of(call, argument, graph) for graph in graphs])
