"""The rows of the registry that stand for classes of Python's, and what the core asks of them."""

import contextlib
import contextvars
import dataclasses
import inspect
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import networkx as nx
import torch

from bluefog_cpp import _arguments
from bluefog_cpp._extension import core
from bluefog_cpp._matrices import graph_of, matrix_of
from bluefog_cpp.errors import ArgumentTypeError, InvalidArgument
from bluefog_cpp.torch._own.algorithms import Algorithm, Bucket, Mixing, Number, Option
from bluefog_cpp.torch._own.carried import CarriedTensors
from bluefog_cpp.torch._own.classes import check_class, is_same
from bluefog_cpp.torch._own.schedules import schedule_from

_MOST_STEPS = 1024
"""The longest period of a schedule whose graphs a function is asked for."""
_FIELDS = ("global_period_rounds", "momentum", "compression", "step_in_backward")
_classes: dict[str, type[Algorithm]] = {}
_wrapped: contextvars.ContextVar[Any] = contextvars.ContextVar("wrapped", default=lambda: None)


@dataclasses.dataclass(frozen=True)
class _NamedOption:
    name: str
    default: Number
    meaning: str
    least: float
    below: float


@dataclasses.dataclass(frozen=True)
class Description:
    """A class as the core reads it."""

    name: str
    aliases: list[str]
    equation: str
    description: str
    source: str
    overlap: str
    copies: int
    carried: str
    options: list[_NamedOption]
    mixing: Mixing
    state: list[str]
    scalars: list[tuple[str, float]]
    averages_with_neighbors: bool
    needs_every_step: bool
    allows_reevaluation: bool
    bound_to_values: str
    full_precision_because: str
    default_schedule: Callable[[int], Any] | None
    transform: Callable[[nx.DiGraph], nx.DiGraph] | None
    why_unfit: Callable[[nx.DiGraph], str] | None


def register_algorithm(algorithm: type[Algorithm]) -> type[Algorithm]:
    """Makes a class known by its `name`, as a decorator: `DecentralizedOptimizer`, bfbench and
    `python -m bluefog_cpp.algorithms` take it like those of the core. On all ranks, before the
    first optimizer that uses it. Returns the class.

    A class of the same module and name takes the former one's place, as where a cell of a notebook
    runs again; optimizers that were made before go on as they were.

    Raises ArgumentTypeError for anything but a subclass of `Algorithm` with a method `step`, and
    InvalidArgument for names that are taken and attributes that make no sense, each by its name.
    """
    call = "register_algorithm"
    check_class(call, "algorithm", algorithm, Algorithm, "step")
    description = _described(call, algorithm)
    former = _classes.get(description.name)
    core.register_python_algorithm(description, former is not None and is_same(former, algorithm))
    _classes[description.name] = algorithm
    return algorithm


def first_line(text: str | None) -> str:
    """The words of tables for a class."""
    return (text or "").strip().partition("\n")[0]


def _own(cls: type, name: str) -> list[Any]:
    """The attributes of that name of the class and its bases, bases first."""
    return [base.__dict__[name] for base in reversed(cls.__mro__) if name in base.__dict__]


def _described(call: str, cls: type[Algorithm]) -> Description:
    where = f"{call}, {cls.__name__}"

    def text(name: str) -> str:
        return _arguments.checked(where, name, _arguments.name, getattr(cls, name))

    def switch(name: str) -> bool:
        return _arguments.checked(where, name, _arguments.switch, getattr(cls, name))

    def function(name: str, takes: str) -> Any:
        return _arguments.checked(where, name, _function_of(takes), getattr(cls, name))

    state = list(dict.fromkeys(
        _arguments.checked(where, "state", _arguments.text, name)
        for names in _own(cls, "state") for name in _list(where, "state", names)))
    scalars = {_arguments.checked(where, "scalars", _arguments.text, name):
               _arguments.checked(where, f"scalars, {name}", _arguments.number, value)
               for some in _own(cls, "scalars") for name, value in _dict(where, "scalars", some)}
    mixing = _arguments.checked(where, "mixing", _arguments.instance_of(Mixing, "a bf.Mixing"),
                                cls.mixing)
    return Description(
        name=text("name"), aliases=_list(where, "aliases", cls.aliases), equation=text("equation"),
        description=first_line(cls.__doc__), source=text("source"), overlap=text("overlap"),
        copies=len(state), carried=", ".join((*state, *scalars)),
        options=[_option(where, name, option) for name, option in
                 {name: option for some in _own(cls, "options")
                  for name, option in _dict(where, "options", some)}.items()],
        mixing=mixing, state=state, scalars=list(scalars.items()),
        averages_with_neighbors=switch("averages_with_neighbors"),
        needs_every_step=switch("needs_every_step"),
        allows_reevaluation=switch("allows_reevaluation"),
        bound_to_values=text("bound_to_values"),
        full_precision_because=text("full_precision_because"),
        default_schedule=function("default_schedule", "size"),
        transform=function("transform", "graph"), why_unfit=function("why_unfit", "graph"))


def _function_of(parameter: str) -> Callable[[Any], Any]:
    """Something to call with this one argument, or None."""
    def check(value: Any) -> Any:
        if _arguments.function_or_none(value) is None:
            return value
        try:
            signature = inspect.signature(value)
        except (TypeError, ValueError):  # of a built-in function, which does not tell
            return value
        try:
            signature.bind(None)
        except TypeError as error:
            raise ArgumentTypeError(f"expected a function of ({parameter}), of a class a "
                                    f"@staticmethod, found one of {signature}") from error
        return value
    return check


def _list(where: str, name: str, value: Any) -> list[str]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ArgumentTypeError(f"{_arguments.place(where)}: {name}: expected names, as in "
                                f"('one',), found {_arguments.shown(value)}")
    return list(value)


def _dict(where: str, name: str, value: Any) -> list[tuple[str, Any]]:
    if not isinstance(value, Mapping):
        raise ArgumentTypeError(f"{_arguments.place(where)}: {name}: expected a dict by name, "
                                f"found {_arguments.shown(value)}")
    return list(value.items())


def _option(where: str, name: Any, option: Any) -> _NamedOption:
    where = f"{where}, options"
    name = _arguments.checked(where, "name", _arguments.text, name)
    if name in _FIELDS:
        raise InvalidArgument(f"{_arguments.place(where)}: expected a name that no argument of "
                              f"DecentralizedOptimizer has, found '{name}'")
    option = _arguments.checked(where, name, _arguments.instance_of(Option, "a bf.Option"), option)
    if not isinstance(option.default, bool | int | float):
        raise ArgumentTypeError(f"{_arguments.place(where)}: {name}: expected a number as default, "
                                f"found {_arguments.shown(option.default)}")
    return _NamedOption(name, option.default,
                        _arguments.checked(where, f"{name}, meaning", _arguments.text,
                                           option.meaning),
                        float(option.least), float(option.below))


@contextlib.contextmanager
def made_for(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """While the core makes an algorithm that steps this optimizer."""
    token = _wrapped.set(weakref.ref(optimizer))
    try:
        yield
    finally:
        _wrapped.reset(token)


# ---- what the core calls


def description_of(name: str) -> Description:
    """The class of that name, as it is now."""
    return _described("register_algorithm", _classes[name])


def make(name: str, rank: int, size: int, options: dict[str, Number],
         parts: list[tuple[str, torch.Tensor, list[Any], dict[str, torch.Tensor]]],
         scalars: dict[str, torch.Tensor]) -> Algorithm:
    """An object of the class of that name, at its start."""
    algorithm = _classes[name]()
    algorithm.rank, algorithm.size = rank, size
    algorithm._wrapped = _wrapped.get()
    buckets = [
        Bucket(index, bucket_name, values,
               CarriedTensors(f"bucket {bucket_name} of {name}", "state", state),
               {place[0]: place[1] for place in places},
               {place[0]: place[2:] for place in places})
        for index, (bucket_name, values, places, state) in enumerate(parts)]
    algorithm.buckets = buckets
    algorithm._keep_memory()
    algorithm.__dict__.update(options=options,
                              scalars=CarriedTensors(name, "scalars", scalars))
    algorithm._restart()
    return algorithm


def default_schedule(name: str, size: int) -> core.Schedule:
    make_one = _classes[name].default_schedule
    assert make_one is not None
    return schedule_from(f"{name}, default_schedule", "result", make_one(size), name, size, 1)


def _graphs_of(name: str, schedule: core.Schedule) -> list[nx.DiGraph]:
    if schedule.period_steps > _MOST_STEPS:
        raise InvalidArgument(f"{name}: expected a schedule that repeats after at most "
                              f"{_MOST_STEPS} rounds, found one after {schedule.period_steps}")
    return [graph_of(schedule.mixing_matrix(step)) for step in range(schedule.period_steps)]


def transformed(name: str, schedule: core.Schedule) -> core.Schedule:
    transform = _classes[name].transform
    assert transform is not None
    return core.cycle([matrix_of(f"{name}, transform", "result", transform(graph))
                       for graph in _graphs_of(name, schedule)])


def why_unfit(name: str, schedule: core.Schedule) -> str:
    check = _classes[name].why_unfit
    assert check is not None
    for step, graph in enumerate(_graphs_of(name, schedule)):
        try:
            reason = check(graph)
        except Exception as error:
            raise InvalidArgument(f"{name}, why_unfit of round {step}: {type(error).__name__}: "
                                  f"{error}") from error
        if reason:
            return f"schedule: {name}, round {step}: {reason}"
    return ""
