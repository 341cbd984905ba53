"""From the weights of a call to this rank's part of an averaging step."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from bluefog_cpp._arguments import checked
from bluefog_cpp._extension import core
from bluefog_cpp.errors import InvalidArgument, LateMismatchError, StateError
from bluefog_cpp.torch import _steering
from bluefog_cpp.torch._runtime import Runtime, Topology

DstWeights = Sequence[int] | Mapping[int, float]


class Step(NamedTuple):
    """This rank's part of one call."""
    plan: core.NeighborPlan
    checked: bool
    """Whether the ranks' parts are compared before any data moves."""
    topology: Topology | None = None
    """That whose parts are compared in this call."""
    compared_before: int | None = None

    def failed(self, error: BaseException) -> None:
        """A call that compares fails on all ranks or on none: the next one compares again. What
        failed with a late error was an earlier one."""
        if self.topology is not None and not isinstance(error, LateMismatchError):
            self.topology.comparison.graph = self.compared_before

    def run(self, call: Callable[[], Any]) -> Any:
        """`call()`, which is this call or begins it."""
        try:
            return call()
        except BaseException as error:
            self.failed(error)
            raise


def static_plan(topology: Topology) -> Step:
    """The topology's part; to be compared with the other ranks' in the first call on it."""
    if topology.comparison.graph == topology.plan.graph:
        return Step(topology.plan, False)
    before, topology.comparison.graph = topology.comparison.graph, topology.plan.graph
    return Step(topology.plan, True, topology, before)


def neighbor_plan(runtime: Runtime, self_weight: float | None,
                  src_weights: Mapping[int, float] | None, dst_weights: DstWeights | None,
                  enable_topo_check: bool) -> Step:
    """For `neighbor_allreduce`: static without arguments, dynamic with `dst_weights`, else the
    topology's edges with weights of the call."""
    call = "neighbor_allreduce"
    enable_topo_check = checked(call, "enable_topo_check", _steering.switch, enable_topo_check)
    if self_weight is None and src_weights is None and dst_weights is None:
        return static_plan(runtime.topology)
    self_weight = checked(call, "self_weight", _steering.weight, self_weight)
    src = checked(call, "src_weights", _steering.rank_weights, src_weights)
    dst = checked(call, "dst_weights", _steering.receivers, dst_weights)
    if self_weight is None or src is None:
        raise InvalidArgument(
            f"rank {runtime.rank}, {call}: expected self_weight and src_weights together"
            f"{'' if dst is None else ' where dst_weights is given'}, found "
            f"{'no self_weight' if self_weight is None else 'no src_weights'}")
    if dst is not None:
        plan = core.NeighborPlan(runtime.rank, runtime.size, self_weight, src, dst)
        return Step(plan, enable_topo_check)
    static = runtime.topology.plan
    strangers = sorted(set(src) - set(static.src_ranks))
    if strangers:
        raise InvalidArgument(
            f"rank {runtime.rank}, {call}: src_weights without dst_weights: expected in-neighbours "
            f"of the topology, which are {static.src_ranks}, found {strangers}")
    # Neighbours that are left out send all the same.
    src = {rank: src.get(rank, 0.0) for rank in static.src_ranks}
    plan = core.NeighborPlan(runtime.rank, runtime.size, self_weight, src, static.dst_weights)
    plan.graph = static.graph
    return static_plan(runtime.topology)._replace(plan=plan)


def machine_plan(runtime: Runtime, self_weight: float | None,
                 src_machine_weights: Mapping[int, float] | None,
                 dst_machine_weights: DstWeights | None, enable_topo_check: bool) -> Step:
    """For `hierarchical_neighbor_allreduce`."""
    call = "hierarchical_neighbor_allreduce"
    enable_topo_check = checked(call, "enable_topo_check", _steering.switch, enable_topo_check)
    self_weight = checked(call, "self_weight", _steering.weight, self_weight)
    src = checked(call, "src_machine_weights", _steering.machine_weights, src_machine_weights)
    dst = checked(call, "dst_machine_weights", _steering.receiving_machines, dst_machine_weights)
    if self_weight is None and src is None and dst is None:
        if runtime.machine_topology is None:
            raise StateError(
                f"rank {runtime.rank}, {call}: expected a machine topology "
                "or weights; call set_machine_topology first")
        return static_plan(runtime.machine_topology)
    if self_weight is None or src is None or dst is None:
        raise InvalidArgument(
            f"rank {runtime.rank}, {call}: expected self_weight, src_machine_weights and "
            "dst_machine_weights together, or none of them")
    context = runtime.context
    plan = core.NeighborPlan(context.machine_rank, context.machine_count, self_weight, src, dst)
    return Step(plan, enable_topo_check)


def gather_plan(runtime: Runtime, src_ranks: Sequence[int] | None,
                dst_ranks: Sequence[int] | None, enable_topo_check: bool) -> Step:
    """For `neighbor_allgather`."""
    call = "neighbor_allgather"
    enable_topo_check = checked(call, "enable_topo_check", _steering.switch, enable_topo_check)
    if src_ranks is None and dst_ranks is None:
        return static_plan(runtime.topology)
    src = checked(call, "src_ranks", _steering.receivers, src_ranks)
    dst = checked(call, "dst_ranks", _steering.receivers, dst_ranks)
    if src is None or dst is None:
        raise InvalidArgument(
            f"rank {runtime.rank}, {call}: expected src_ranks and dst_ranks together, or "
            "none of them")
    plan = core.NeighborPlan(runtime.rank, runtime.size, 1.0, dict.fromkeys(src, 1.0),
                             dict.fromkeys(dst, 1.0))
    return Step(plan, enable_topo_check)
