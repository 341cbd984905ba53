"""Every algorithm of the core, around any optimizer of `torch.optim`."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import networkx as nx
import torch

from bluefog_cpp import _arguments
from bluefog_cpp._extension import core
from bluefog_cpp._matrices import matrix_of
from bluefog_cpp.errors import InvalidArgument
from bluefog_cpp.torch._distributed_step import Models
from bluefog_cpp.torch._optimizers import GradientOptimizer, wrap
from bluefog_cpp.torch._runtime import Runtime, current

Graphs: TypeAlias = str | nx.DiGraph | Sequence[nx.DiGraph]

# Momentum that averages of momentum stand in for: the plain optimizer has none then.
_HAS_MOMENTUM = ("decent_lam", "quasi_global_momentum")


class AlgorithmOptimizer(GradientOptimizer):
    """Steps by an algorithm of the core's, over the graphs that it was made with."""

    def restart(self) -> None:
        """Forgets what the algorithm carries from step to step (corrections, tracked gradients,
        weights): after parameters were set to other values. All ranks, between the same steps."""
        self._distributed.core.restart()


def DecentralizedOptimizer(optimizer: torch.optim.Optimizer, model: Models,
                           algorithm: str = "adapt_then_combine", *,
                           graphs: Graphs | None = None, num_steps_per_communication: int = 1,
                           global_period_rounds: int = 6, momentum: float = 0.9,
                           bucket_bytes: int = 0, step_in_backward: bool = False) -> Any:
    """Collective. Any algorithm of the core by its name; with W the weights of a round, J the
    average over all ranks and d what `optimizer` steps by:

    | `algorithm` | update |
    |---|---|
    | `adapt_then_combine` | x ← W (x - γ d) |
    | `adapt_with_combine` | x ← W x - γ d(x) |
    | `gradient_allreduce` | x ← x - γ d of the mean gradient |
    | `none` | x ← x - γ d |
    | `extra` | x⁺ = (I + W) x - ½ (I + W) x₋ - γ (d - d₋) |
    | `exact_diffusion` | ψ = x - γ d; x ← ½ (I + W) (ψ + x - ψ₋) |
    | `d2` | ψ = x - γ d; x ← W (ψ + x - ψ₋) |
    | `gradient_tracking` | y⁺ = W y + g⁺ - g; x⁺ = W (x - γ d(y)) |
    | `push_sum` | x ← P (x - γ d(x / w)); w ← P w |
    | `gossip_pga` | x ← W (x - γ d), every `global_period_rounds` rounds x ← J (x - γ d) |
    | `local_sgd` | x ← x - γ d, in communicating steps x ← J (x - γ d) |
    | `decent_lam` | v ← β v + x - W (x - γ d); x ← x - v |
    | `quasi_global_momentum` | x⁺ = W (x - γ d - β v); v ← β v + (1 - β) (x - x⁺) |
    | `win_put`, `pull_get` | adapt-then-combine with what neighbours put last, or what is fetched |
    | `async_push_sum` | push-sum in which no rank waits |

    graphs: None for the topology of `set_topology` (where none was set, what suits the algorithm:
    the exponential graph, symmetric where W must be); the name of a family of `bftopo list`; a
    DiGraph with weights; or several, by turns.
    num_steps_per_communication: every k-th step communicates.
    momentum: β of `decent_lam` and `quasi_global_momentum`; `optimizer` has none of its own then.
    bucket_bytes: parameters travel in pieces of up to this size; 0 is `BLUEFOG_FUSION_THRESHOLD`,
    and at most 4 MiB where pieces leave in the backward pass.
    step_in_backward: of `adapt_then_combine`: each piece is stepped and sent as soon as the
    backward pass has its gradients. Most of the round is then over when `step` is called; gradients
    cannot be clipped or scaled before they are used, and each step has one backward pass.
    The choices are attributes of the result, to be read.

    Raises InvalidArgument for an unknown name, or graphs on which the algorithm cannot converge,
    with the reason. docs/optimizers.md has conditions, cost and source of each.
    """
    runtime, maker = current(), "DecentralizedOptimizer"
    runtime.argument(maker, "algorithm", _arguments.one_of(*core.algorithms), algorithm)
    chosen = {name: runtime.argument(maker, name, check, value) for name, check, value in (
        ("global_period_rounds", _arguments.at_least(1), global_period_rounds),
        ("momentum", _arguments.number, momentum),
        ("bucket_bytes", _arguments.at_least(0), bucket_bytes),
        ("step_in_backward", _arguments.switch, step_in_backward))}
    if algorithm in _HAS_MOMENTUM:
        runtime.or_refuse(lambda: _check_without_momentum(optimizer, algorithm))
    schedule = runtime.or_refuse(lambda: _schedule_of(runtime, maker, graphs))
    return wrap(optimizer, AlgorithmOptimizer, maker, model, algorithm,
                num_steps_per_communication, {"algorithm": algorithm, "graphs": graphs, **chosen},
                schedule=schedule, **chosen)


def _check_without_momentum(optimizer: torch.optim.Optimizer, algorithm: str) -> None:
    for place, group in enumerate(getattr(optimizer, "param_groups", [])):
        if group.get("momentum") or "betas" in group:
            raise InvalidArgument(
                f"{_arguments.place('DecentralizedOptimizer')}: optimizer: {algorithm} has a "
                "momentum of its own: expected an optimizer without, found "
                f"{type(optimizer).__name__} with one in group {place}")


def _schedule_of(runtime: Runtime, maker: str, graphs: Graphs | None) -> Any:
    if graphs is None:
        topology = runtime.topology
        if topology.is_default:
            return None
        return core.static_schedule(matrix_of(maker, "graphs", topology.graph,
                                              topology.is_weighted))
    if isinstance(graphs, str):
        try:
            return core.make_schedule(graphs, runtime.size, runtime.context.local_size)
        except InvalidArgument as error:
            raise InvalidArgument(f"{_arguments.place(maker)}: graphs: {error}") from None
    if isinstance(graphs, nx.DiGraph):
        return core.static_schedule(matrix_of(maker, "graphs", graphs))
    # Generators of schedules have no end.
    matrices = list(graphs) if isinstance(graphs, (list, tuple)) else [graphs]
    wrong = [graph for graph in matrices if not isinstance(graph, nx.DiGraph)]
    if wrong or not matrices:
        found = _arguments.described(wrong[0]) if wrong else "none"
        raise InvalidArgument(
            f"{_arguments.place(maker)}: graphs: expected a name of `bftopo list`, a "
            f"networkx.DiGraph or several, found {found}")
    return core.cycle([matrix_of(maker, "graphs", graph) for graph in matrices])
