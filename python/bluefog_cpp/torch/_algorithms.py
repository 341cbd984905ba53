"""Every algorithm of the core, around any optimizer of `torch.optim`."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

import networkx as nx
import torch

from bluefog_cpp import _arguments
from bluefog_cpp._extension import core
from bluefog_cpp._matrices import matrix_of
from bluefog_cpp.errors import ArgumentTypeError, InvalidArgument
from bluefog_cpp.torch._optimizers import GradientOptimizer, wrap
from bluefog_cpp.torch._own.compressions import Compression, compression_from
from bluefog_cpp.torch._own.schedules import Schedule, name_to_make, schedule_from
from bluefog_cpp.torch._runtime import Runtime, current
from bluefog_cpp.torch._wrapped.model_parts import Models

_Found = TypeVar("_Found")
Graphs: TypeAlias = str | nx.DiGraph | Sequence[nx.DiGraph] | Schedule | type[Schedule]


class AlgorithmOptimizer(GradientOptimizer):
    """Steps by an algorithm of the core's, over the graphs that it was made with."""

    def restart(self) -> None:
        """Forgets what the algorithm carries from step to step (corrections, tracked gradients,
        weights): after parameters were set to other values. All ranks, between the same steps."""
        self._distributed.core.restart()


def DecentralizedOptimizer(optimizer: torch.optim.Optimizer, model: Models,
                           algorithm: str = "adapt_then_combine", *,
                           schedule: Graphs | None = None, graphs: Graphs | None = None,
                           num_steps_per_communication: int = 1, global_period_rounds: int = 6,
                           momentum: float = 0.9, bucket_bytes: int = 0,
                           step_in_backward: bool = False, row_sums: str = "one",
                           compression: str | Compression | None = None,
                           numbers: dict[str, float] | None = None) -> Any:
    """Collective. Any registered algorithm by its name; `python -m bluefog_cpp.algorithms` lists
    them with their equations, as docs/optimizers.md does.

    algorithm: a name or an alias; hyphens and underscores mean the same. Algorithms that a shared
    object (docs/your_own_algorithm.md) or `register_algorithm` has registered count too.
    schedule: None for the topology of `set_topology` (where none was set, what suits the algorithm:
    the exponential graph, symmetric where W must be); the name of a family of `bftopo list`; a
    DiGraph with weights; several, by turns; or a `bf.Schedule`, its class, or its name.
    graphs: the name of `schedule` in version 0.1.
    num_steps_per_communication: every k-th step communicates.
    global_period_rounds: H of `gossip_pga` and `slowmo`.
    momentum: β of `decent_lam` and `quasi_global_momentum`; `optimizer` has none of its own then.
    bucket_bytes: parameters travel in pieces of up to this size; 0 is `BLUEFOG_FUSION_THRESHOLD`,
    and where pieces leave in the backward pass at most 1 MiB, of `gradient_allreduce` 2 MiB.
    step_in_backward: of `adapt_then_combine`: each piece is stepped and sent as soon as the
    backward pass has its gradients. Most of the round is then over when `step` is called; gradients
    cannot be clipped or scaled before they are used, and each step has one backward pass.
    row_sums: "any" where rows of the graphs may sum to something else than 1: each round multiplies
    a rank's parameters by the sum of its row. Push-sum asks for columns that sum to 1 instead.
    compression: of `choco`, `sparse_loco`, `gossip_diloco`, `diloco` and `gradient_allreduce`: the
    code of what ranks send, "bfloat16", "float16", "int8", "int4", "sign", "topk", "topk8",
    "topk:K" or "topk8:K"; None for choco's "int4" and sparse_loco's "topk8:32", and for none with
    the others ("none"). docs/optimizers.md says what each keeps and costs. A `bf.Compression` or
    the name of one, too.
    numbers: options that the algorithm's row lists and that have no argument here, by name.
    The choices are attributes of the result, to be read.

    Raises InvalidArgument for an unknown name, or graphs on which the algorithm cannot converge,
    with the reason. docs/optimizers.md has conditions, cost and source of each.
    """
    return wrap_by_name("DecentralizedOptimizer", optimizer, model, algorithm, schedule, graphs,
                        num_steps_per_communication, row_sums,
                        global_period_rounds=global_period_rounds, momentum=momentum,
                        bucket_bytes=bucket_bytes, step_in_backward=step_in_backward,
                        compression=compression, numbers=numbers)


def _compression(value: Any) -> Any:
    return value if value is None or value == "none" else compression_from(value)


_CHECKS: dict[str, _arguments.Check] = {
    "global_period_rounds": _arguments.at_least(1),
    "momentum": _arguments.number,
    "bucket_bytes": _arguments.at_least(0),
    "step_in_backward": _arguments.switch,
    "compression": _compression,
    "numbers": _arguments.numbers,
}


def wrap_by_name(maker: str, optimizer: torch.optim.Optimizer, model: Models, algorithm: str,
                 schedule: Graphs | None, graphs: Graphs | None, num_steps_per_communication: int,
                 row_sums: str, **options: Any) -> Any:
    """What `DecentralizedOptimizer` makes, for the public function `maker`.

    options: those of `_CHECKS`.
    """
    runtime = current()
    row = runtime.argument(maker, "algorithm", row_named, algorithm)
    chosen = {name: runtime.argument(maker, name, _CHECKS[name], value)
              for name, value in options.items()}
    if chosen.get("compression") == "none":
        runtime.or_refuse(lambda: _check_goes_without(maker, row))
        chosen["compression"] = None
    if row.reads("momentum"):
        runtime.or_refuse(lambda: _check_without_momentum(maker, optimizer, row.name))
    name, given = runtime.or_refuse(lambda: _one_of_both(maker, schedule, graphs))
    made = runtime.or_refuse(lambda: _schedule_of(runtime, maker, row, name, given))
    code = chosen.get("compression")
    shown = {**chosen, **({"compression": code.name} if code is not None else {})}
    return wrap(optimizer, AlgorithmOptimizer, maker, model, row.name, num_steps_per_communication,
                {"algorithm": row.name, "schedule": given, "graphs": given, **shown}, row_sums,
                schedule=made, schedule_name=name_to_make(given), **chosen)


def _check_goes_without(maker: str, row: core.AlgorithmRow) -> None:
    if any(option.name == "compression" and option.default != "none" for option in row.options):
        raise InvalidArgument(f"rank {current().rank}, {maker}: compression: expected a code, "
                              f"which {row.name} always has, found 'none'")


def row_named(name: Any) -> core.AlgorithmRow:
    """The algorithm of a name or an alias."""
    return _named("algorithm", core.algorithm_named, name)


def _named(argument: str, find: Callable[[str], _Found], name: Any) -> _Found:
    """What the core finds by a name; its errors without the argument's, which others put first."""
    try:
        return find(_arguments.text(name))
    except ArgumentTypeError:
        raise
    except InvalidArgument as error:
        raise InvalidArgument(str(error).removeprefix(f"{argument}: ")) from None


def _one_of_both(maker: str, schedule: Any, graphs: Any) -> tuple[str, Any]:
    """The schedule, with the name of the argument that it came by."""
    if schedule is not None and graphs is not None:
        raise InvalidArgument(f"{_arguments.place(maker)}: schedule: expected it without graphs, "
                              "which is its old name, found both")
    if graphs is None:
        return "schedule", schedule
    warnings.warn(f"{maker}: the argument 'graphs' is now called 'schedule'", DeprecationWarning,
                  stacklevel=6)
    return "graphs", graphs


def _check_without_momentum(maker: str, optimizer: torch.optim.Optimizer,
                            algorithm: str) -> None:
    for place, group in enumerate(getattr(optimizer, "param_groups", [])):
        if group.get("momentum") or "betas" in group:
            raise InvalidArgument(
                f"{_arguments.place(maker)}: optimizer: {algorithm} has a momentum of its own: "
                "expected an optimizer without, found "
                f"{type(optimizer).__name__} with one in group {place}")


def _schedule_of(runtime: Runtime, maker: str, row: core.AlgorithmRow, name: str,
                 graphs: Graphs | None) -> Any:
    if graphs is not None:
        return schedule_from(maker, name, graphs, row.name, runtime.size,
                             runtime.context.local_size)
    topology = runtime.topology
    if topology.is_default or row.brings_schedule:
        return None
    return core.static_schedule(matrix_of(maker, "graphs", topology.graph, topology.is_weighted))
