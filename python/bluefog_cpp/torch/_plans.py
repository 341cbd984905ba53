"""From the weights of a call to this rank's part of an averaging step."""

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, NamedTuple

from bluefog_cpp._arguments import checked, place
from bluefog_cpp._extension import core
from bluefog_cpp.errors import InvalidArgument, LateMismatchError, StateError
from bluefog_cpp.torch._runtime import Runtime, Topology
from bluefog_cpp.torch._wrapped import steering

DstWeights = Sequence[int] | Mapping[int, float]


class Step(NamedTuple):
    """This rank's part of one call."""
    plan: core.NeighborPlan
    checked: bool
    """Whether the ranks' parts are compared before any data moves."""
    topology: Topology | None = None
    """The graph whose parts are compared in this call."""
    compared_before: int | None = None

    def failed(self, error: BaseException) -> None:
        """A call that compares fails on all ranks or on none: the next one compares again.
        A late error is of an earlier call."""
        if self.topology is not None and not isinstance(error, LateMismatchError):
            self.topology.comparison.graph = self.compared_before

    def run(self, call: Callable[[], Any]) -> Any:
        """`call()`, which is this call or begins it."""
        try:
            return call()
        except BaseException as error:
            self.failed(error)
            raise


def static_plan(topology: Topology, is_of_call: bool = True) -> Step:
    """The topology's part; to be compared with the other ranks' in the first call on it."""
    if not is_of_call or topology.comparison.graph == topology.plan.graph:
        return Step(topology.plan, False)
    before, topology.comparison.graph = topology.comparison.graph, topology.plan.graph
    return Step(topology.plan, True, topology, before)


def check_average(call: str, topology: Topology) -> None:
    """Raises InvalidArgument where this rank's weights of the topology do not sum to 1."""
    plan = topology.plan
    total = plan.self_weight + sum(plan.src_weights.values())
    if abs(total - 1) > 1e-6:
        raise InvalidArgument(
            f"{place(call)}: expected weights of the topology that sum to 1 for rank {plan.rank}, "
            "because ranks that agree would else leave what they agree on, found that they sum to "
            f"{total:.9g}; correct them (set_topology), or ask for such sums: row_sums='any'")


def _take_in_own(call: str, own: int, what: str, self_weight: float, src: dict[int, float],
                 dst: dict[int, float]) -> float:
    """The self weight, with what the rank sends to itself where it is among both: so BlueFog's
    scripts write a rank that is idle in a round. It is in neither afterwards."""
    if (own in src) != (own in dst):
        raise InvalidArgument(
            f"{place(call)}: expected {what} {own} itself among its sources and its destinations, "
            f"or among neither, found it among its {'sources' if own in src else 'destinations'} "
            "alone; its own value needs no edge, and counts by the self weight")
    return self_weight + src.pop(own) * dst.pop(own) if own in src else self_weight


def neighbor_plan(runtime: Runtime, self_weight: float | None,
                  src_weights: Mapping[int, float] | None, dst_weights: DstWeights | None,
                  enable_topo_check: bool, is_of_call: bool = True) -> Step:
    """For `neighbor_allreduce`: static without arguments, dynamic with `dst_weights`, else the
    topology's edges with weights of the call.

    is_of_call: else it is to be looked at alone, and nothing counts as compared.
    """
    call = "neighbor_allreduce"
    enable_topo_check = checked(call, "enable_topo_check", steering.switch, enable_topo_check)
    if self_weight is None and src_weights is None and dst_weights is None:
        return static_plan(runtime.topology, is_of_call)
    self_weight = checked(call, "self_weight", steering.weight, self_weight)
    src = checked(call, "src_weights", steering.sources_of_average, src_weights)
    dst = checked(call, "dst_weights", steering.receivers_of_average, dst_weights)
    if self_weight is None or src is None:
        raise InvalidArgument(
            f"rank {runtime.rank}, {call}: expected self_weight and src_weights together"
            f"{'' if dst is None else ' where dst_weights is given'}, found "
            f"{'no self_weight' if self_weight is None else 'no src_weights'}")
    self_weight = _take_in_own(call, runtime.rank, "rank", self_weight, src,
                               {} if dst is None else dst)
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
    plan.take_graph(static)
    return static_plan(runtime.topology, is_of_call)._replace(plan=plan)


def machine_plan(runtime: Runtime, self_weight: float | None,
                 src_machine_weights: Mapping[int, float] | None,
                 dst_machine_weights: DstWeights | None, enable_topo_check: bool) -> Step:
    """For `hierarchical_neighbor_allreduce`."""
    call = "hierarchical_neighbor_allreduce"
    enable_topo_check = checked(call, "enable_topo_check", steering.switch, enable_topo_check)
    self_weight = checked(call, "self_weight", steering.weight, self_weight)
    src = checked(call, "src_machine_weights", steering.machine_weights, src_machine_weights)
    dst = checked(call, "dst_machine_weights", steering.receiving_machines, dst_machine_weights)
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
    self_weight = _take_in_own(call, context.machine_rank, "machine", self_weight, src, dst)
    plan = core.NeighborPlan(context.machine_rank, context.machine_count, self_weight, src, dst)
    return Step(plan, enable_topo_check)


def gather_plan(runtime: Runtime, src_ranks: Sequence[int] | None,
                dst_ranks: Sequence[int] | None,
                enable_topo_check: bool) -> tuple[Step, list[int]]:
    """For `neighbor_allgather`, with the ranks in the order of the result; none: by rising rank."""
    call = "neighbor_allgather"
    enable_topo_check = checked(call, "enable_topo_check", steering.switch, enable_topo_check)
    if src_ranks is None and dst_ranks is None:
        return static_plan(runtime.topology), []
    src = checked(call, "src_ranks", steering.receivers_of_average, src_ranks)
    dst = checked(call, "dst_ranks", steering.receivers_of_average, dst_ranks)
    if src is None or dst is None:
        raise InvalidArgument(
            f"rank {runtime.rank}, {call}: expected src_ranks and dst_ranks together, or "
            "none of them")
    order = sorted(src) if isinstance(src_ranks, Set) else list(src)
    _take_in_own(call, runtime.rank, "rank", 1.0, src, dst)
    plan = core.NeighborPlan(runtime.rank, runtime.size, 1.0, dict.fromkeys(src, 1.0),
                             dict.fromkeys(dst, 1.0))
    return Step(plan, enable_topo_check), order
